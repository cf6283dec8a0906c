#include "models/repeats.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "lib/error.hpp"

namespace fathom {
namespace {

bool same(const Operand& a, const Operand& b) { return a.tensor == b.tensor && a.layer_offset == b.layer_offset; }

// Why an op of this kind is never repeated; null where it can be.
const char* replayed(const OpSpec& spec) {
  if (std::holds_alternative<RouterScore>(spec)) return "a router's scores are replayed";
  if (std::holds_alternative<Select>(spec) || std::holds_alternative<ExpertSelect>(spec)) return "a selection is replayed";
  if (std::holds_alternative<RouterLoss>(spec) || std::holds_alternative<CrossEntropy>(spec)) return "a loss is formed once";
  return nullptr;
}

}  // namespace

RepeatPolicy::RepeatPolicy(const Scenario& scenario) {
  if (scenario.phase != Phase::kTrain) return;
  if (scenario.recompute == Recompute::kSelective) items_.push_back({"attn/core", true, ""});  // no attention, nothing to repeat
  if (scenario.recompute == Recompute::kNamed)
    for (const std::string& name : scenario.recompute_ops) items_.push_back({name, false, ""});
}

bool RepeatPolicy::wants(const std::string& leaf, std::string_view kind, const char* why) {
  bool wanted = false;
  for (Item& item : items_) {
    const bool named = item.name == leaf || item.name == kind || (leaf.size() > item.name.size() && leaf.starts_with(item.name) && leaf[item.name.size()] == '/');
    if (!named) continue;
    if (why && item.why_not.empty()) item.why_not = fmt::format("{}: {}", leaf, why);
    if (!why) item.followed = wanted = true;
  }
  if (std::find(leaves_.begin(), leaves_.end(), leaf) == leaves_.end()) leaves_.push_back(leaf);
  return wanted;
}

void RepeatPolicy::check() const {
  for (const Item& item : items_) {
    if (item.followed) continue;
    if (!item.why_not.empty()) throw_input(fmt::format("'{}' cannot be recomputed: {}", item.name.substr(0, 60), item.why_not), {"", 0, "recompute"});
    std::vector<std::string> names = leaves_;
    for (const char* policy : {"none", "selective", "full"}) names.emplace_back(policy);
    throw_input(fmt::format("no layer has an op or kind of op '{}'", item.name.substr(0, 60)), {"", 0, "recompute"}, name_hint(item.name, names));
  }
}

bool Repeats::takes(const std::string& leaf, const OpSpec& spec, const Operands& outputs) {
  const char* why = leaf.starts_with("predict/") ? "the predictor's backward pass follows at once" : replayed(spec);
  bool follows = false;
  for (int i = 0; i < outputs.size(); ++i) {
    const Operand output = outputs[i];
    if (!writers(output).empty()) follows = true;
    const bool again = std::any_of(written_.begin(), written_.end(), [&](const Operand& each) { return same(each, output); });
    if (again && writers(output).empty() && !why) why = "it works in place on what another op made; name that one";
    if (output.layer_offset != 0 && !why) why = "the next layer reads what it makes";
    if (!again) written_.push_back(output);
  }
  const bool wanted = policy_->wants(leaf, kind_name(spec), why);
  return follows || wanted;
}

std::vector<Repeat*> Repeats::writers(const Operand& at) {
  std::vector<Repeat*> found;
  for (Repeat& each : list_)
    for (int i = 0; i < each.outputs.size(); ++i)
      if (same(each.outputs[i], at)) {
        found.push_back(&each);
        break;
      }
  return found;
}

}  // namespace fathom
