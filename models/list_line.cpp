#include "models/list_line.hpp"

#include <bit>
#include <map>
#include <type_traits>

#include "models/fusion.hpp"
#include "models/totals_breaks.hpp"
#include "models/totals_sums.hpp"

namespace fathom {
namespace {

constexpr std::int64_t kLongestListPeriod = 64;
constexpr int kListPatience = 8;           // requests of a class before eight lists are made for it
constexpr std::size_t kMostListClasses = 128;

// Visits what a list consists of, ops first: number() every whole number that a batch or a length may change, other() everything else.
template <class Visitor>
void visit_list(const Workload& w, Visitor& visitor) {
  const auto field = [&](const char*, const auto& value) {
    using Value = std::remove_cvref_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, Rows>) {
      visitor.number(value.count);
      visitor.other(static_cast<std::uint64_t>(value.probability.num)), visitor.other(static_cast<std::uint64_t>(value.probability.den));
      visitor.other(static_cast<std::uint64_t>(value.source)), visitor.other(static_cast<std::uint64_t>(value.each));
    } else if constexpr (std::is_same_v<Value, std::int64_t> || std::is_same_v<Value, u128>) {
      visitor.number(value);
    } else if constexpr (std::is_same_v<Value, Fraction>) {
      visitor.other(static_cast<std::uint64_t>(value.num)), visitor.other(static_cast<std::uint64_t>(value.den));
    } else if constexpr (std::is_same_v<Value, double>) {
      visitor.other(std::bit_cast<std::uint64_t>(value));
    } else {
      visitor.other(static_cast<std::uint64_t>(value));
    }
  };
  for (const Op& op : w.ops()) {
    visitor.other(op.spec.index());
    std::visit([&](const auto& spec) { spec.fields(field); }, op.spec);
    visitor.other(static_cast<std::uint64_t>(op.part) << 8 | static_cast<std::uint64_t>(op.pass));
    for (const auto* operands : {&op.inputs, &op.outputs}) {
      visitor.other(operands->size());
      for (const Operand& operand : *operands) visitor.other(static_cast<std::uint64_t>(operand.tensor) << 8 | static_cast<std::uint8_t>(operand.layer_offset));
    }
  }
  for (const Tensor& tensor : w.tensors()) {
    visitor.number(tensor.rows), visitor.number(tensor.cols);
    visitor.other(static_cast<std::uint64_t>(tensor.role) << 16 | static_cast<std::uint64_t>(tensor.scope) << 8 | static_cast<std::uint64_t>(tensor.dtype));
  }
  for (const Block& block : w.blocks()) visitor.other(static_cast<std::uint64_t>(block.first_op) << 32 | static_cast<std::uint64_t>(block.op_count)), visitor.other(block.layered);
  for (const Step& step : w.program()) {
    visitor.other(static_cast<std::uint64_t>(step.block) << 32 | static_cast<std::uint64_t>(step.layer));
    visitor.other(static_cast<std::uint64_t>(step.weights) << 32 | static_cast<std::uint64_t>(step.micro));
  }
}

struct Content {
  std::vector<u128> numbers;
  std::vector<std::uint64_t> rest;
  void number(std::int64_t value) { numbers.push_back(wrap(value)); }
  void number(u128 value) { numbers.push_back(value); }
  void other(std::uint64_t value) { rest.push_back(value); }
};

Content content_of(const Workload& w) {
  Content content;
  visit_list(w, content);
  return content;
}

u128 value_of(const std::array<u128, 6>& form, u128 steps, u128 pairs, u128 more) {
  return form[0] + steps * form[1] + pairs * form[2] + more * (form[3] + steps * form[4] + pairs * form[5]);
}

}  // namespace

ListLine::Class* ListLine::class_of(const Scenario& scenario) {
  const std::int64_t residue = scenario.length % period_;
  for (auto known = classes_.rbegin(); known != classes_.rend(); ++known)
    if ((*known)->residue == residue && (*known)->breaks == breaks_) return known->get();
  if (classes_.size() == kMostListClasses) classes_.clear();  // lengths rise, and leave classes behind
  classes_.push_back(std::make_unique<Class>());
  classes_.back()->residue = residue;
  classes_.back()->breaks = breaks_;
  return classes_.back().get();
}

bool ListLine::count(Class& c, const Network& network, const Scenario& scenario) const {
  c.first = scenario.length;
  Scenario at = scenario;
  const auto reaches = [&](std::int64_t steps) {
    at.length = c.first + steps * period_;
    return before_break(network, at, c.breaks);
  };
  WorkloadBuilder memory;
  Content samples[2][3];
  for (const std::int64_t steps : {2, 1, 0})
    for (const std::int64_t batch : {2, 1}) {
      at.batch = batch;
      if (!reaches(steps)) return false;
      const bool kept = steps == 0 && batch == 1;
      const Workload& list = build_in_place(network, at, kept ? c.list : memory);
      if (kept) c.made = &list;
      Content& content = samples[batch - 1][steps] = content_of(list);
      if (content.rest != samples[1][2].rest || content.numbers.size() != samples[1][2].numbers.size()) return false;
    }
  const std::size_t size = samples[0][0].numbers.size();
  std::vector<Form> forms(size);
  for (std::size_t n = 0; n < size; ++n) {
    const auto number = [&](int batch, int steps) { return samples[batch][steps].numbers[n]; };
    for (int batch = 0; batch < 2; ++batch) {
      const u128 zero = number(batch, 0) - (batch ? number(0, 0) : 0), one = number(batch, 1) - (batch ? number(0, 1) : 0), two = number(batch, 2) - (batch ? number(0, 2) : 0);
      forms[n][static_cast<std::size_t>(3 * batch)] = zero;
      forms[n][static_cast<std::size_t>(3 * batch + 1)] = one - zero;
      forms[n][static_cast<std::size_t>(3 * batch + 2)] = two - 2 * one + zero;
    }
  }
  int agreed = 0;
  for (const std::int64_t steps : {3, 1000, 250, 60, 15, 4}) {
    if (agreed == 2) break;
    at.batch = 3 + 4 * agreed;
    if (!reaches(steps)) continue;
    const Content there = content_of(build_in_place(network, at, memory));
    if (there.rest != samples[0][0].rest || there.numbers.size() != size) return false;
    const auto t = static_cast<u128>(steps), more = static_cast<u128>(at.batch - 1);
    for (std::size_t n = 0; n < size; ++n)
      if (value_of(forms[n], t, t * (t - 1) / 2, more) != there.numbers[n]) return false;
    ++agreed;
  }
  if (agreed < 2) return false;

  // The places of what changes, and the few forms it has.
  struct Places {
    Class& c;
    const std::vector<Form>& forms;
    std::map<Form, std::size_t> known{};
    std::size_t n = 0;
    std::optional<std::size_t> form() {
      const Form& form = forms[n++];
      if ((form[1] | form[2] | form[3] | form[4] | form[5]) == 0) return std::nullopt;
      const auto [found, fresh] = known.try_emplace(form, c.forms.size());
      if (fresh) c.forms.push_back(form);
      return found->second;
    }
    // The list is this class's own, and not const.
    void number(const std::int64_t& value) {
      if (const auto at = form()) c.numbers.push_back({const_cast<std::int64_t*>(&value), *at});
    }
    void number(const u128& value) {
      if (const auto at = form()) c.wide.push_back({const_cast<u128*>(&value), *at});
    }
    void other(std::uint64_t) {}
  };
  Places places{c, forms};
  visit_list(*c.made, places);
  return true;
}

void ListLine::move(Class& c, const Scenario& scenario) {
  const auto steps = static_cast<u128>((scenario.length - c.first) / period_), pairs = steps > 0 ? steps * (steps - 1) / 2 : 0, more = static_cast<u128>(scenario.batch - 1);
  values_.clear();
  for (const Form& form : c.forms) values_.push_back(value_of(form, steps, pairs, more));
  for (const Place<std::int64_t>& place : c.numbers) *place.where = static_cast<std::int64_t>(values_[place.form]);
  for (const Place<u128>& place : c.wide) *place.where = values_[place.form];
  StreamShape stream = c.made->stream();
  stream.sequences = scenario.batch;
  stream.queries = scenario.length;
  c.list.stream(stream);
}

const Workload& ListLine::at(const Network& network, std::uint64_t network_id, const Scenario& scenario) {
  followed_ = false;
  const bool steps = (scenario.phase == Phase::kTrain || scenario.phase == Phase::kPrefill) && !needs_list(scenario.fusions) && moderate(scenario);
  if (!steps) return build_in_place(network, scenario, memory_);
  if (scenario_) scenario_->batch = scenario.batch, scenario_->length = scenario.length;
  if (!scenario_ || id_ != network_id || !(*scenario_ == scenario)) {
    id_ = network_id;
    scenario_ = scenario;
    classes_.clear();
    period_ = length_period(network, scenario, kLongestListPeriod);
  }
  if (period_ == 0) return build_in_place(network, scenario, memory_);
  length_breaks(network, scenario, breaks_);
  Class& c = *class_of(scenario);
  if (!c.known && !c.bent && ++c.requests > kListPatience) {
    c.known = count(c, network, scenario);
    c.bent = !c.known;
  }
  if (!c.known || scenario.length < c.first) return build_in_place(network, scenario, memory_);
  move(c, scenario);
  followed_ = true;
  return *c.made;
}

}  // namespace fathom
