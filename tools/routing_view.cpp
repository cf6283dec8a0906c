#include "tools/routing_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lib/error.hpp"
#include "reports/save.hpp"

namespace fathom {
namespace {

// A byte as people read it; other tokens by their number.
std::string token_label(std::int32_t token) {
  if (token < 0 || token > 255) return fmt::format("#{}", token);
  const auto byte = static_cast<unsigned char>(token);
  if (byte == ' ') return "␣";
  if (byte == '\n') return "\\n";
  if (byte == '\t') return "\\t";
  if (byte < 0x20 || byte >= 0x7f) return fmt::format("{:02x}", byte);
  return std::string(1, static_cast<char>(byte));
}

}  // namespace

std::vector<TokenClass> builtin_classes() {
  std::string letters, digits, punctuation;
  for (int c = 0x21; c < 0x7f; ++c) {
    const char byte = static_cast<char>(c);
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
      letters.push_back(byte);
    else if (c >= '0' && c <= '9')
      digits.push_back(byte);
    else
      punctuation.push_back(byte);
  }
  return {{"space", " \t\n\r"}, {"digits", digits}, {"letters", letters}, {"punctuation", punctuation}};
}

std::vector<TokenClass> read_classes(const std::string& path) {
  std::vector<TokenClass> classes;
  const std::string text = load_file(path);
  int line = 0;
  for (size_t at = 0; at < text.size();) {
    ++line;
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string row = text.substr(at, end - at);
    at = end + 1;
    if (row.empty() || row[0] == '#') continue;
    const size_t blank = row.find(' ');
    if (blank == std::string::npos || blank == 0 || blank + 1 >= row.size())
      throw_input("a class is a name, a blank and its bytes", {path, line, ""}, "for example: digits 0123456789");
    TokenClass entry{row.substr(0, blank), ""};
    for (size_t i = blank + 1; i < row.size(); ++i) {
      if (row[i] != '\\') {
        entry.members.push_back(row[i]);
        continue;
      }
      const char escaped = i + 1 < row.size() ? row[++i] : '\0';
      const std::map<char, char> known = {{'s', ' '}, {'n', '\n'}, {'t', '\t'}, {'r', '\r'}, {'\\', '\\'}};
      const auto found = known.find(escaped);
      if (found == known.end()) throw_input("unknown escape in a token class", {path, line, entry.name}, "use \\s, \\n, \\t, \\r or \\\\");
      entry.members.push_back(found->second);
    }
    classes.push_back(std::move(entry));
  }
  if (classes.empty()) throw_input("no token class in this file", {path, 0, ""});
  return classes;
}

std::vector<LayerRouting> run_and_read_routing(Execution& execution, std::int64_t tokens) {
  const Workload& w = execution.workload();
  std::map<int, LayerRouting> layers;
  execution.begin_pass();
  const std::vector<Instance> instances = w.instances();
  for (size_t i = 0; i < instances.size(); ++i) {
    execution.run_instance(static_cast<int>(i));
    const Step& step = w.program()[static_cast<size_t>(instances[i].step)];
    const Block& block = w.blocks()[static_cast<size_t>(step.block)];
    const Op& op = w.ops()[static_cast<size_t>(instances[i].op)];
    if (!block.layered || op.pass != Pass::kForward) continue;
    LayerRouting& layer = layers[step.layer];
    layer.layer = step.layer;
    if (layer.taken.empty()) layer.taken.assign(static_cast<size_t>(tokens), true);
    if (!std::holds_alternative<Select>(op.spec)) continue;
    // Read at once: the memory of scores and indices is reused by later layers.
    layer.routed = true;
    layer.taken.assign(static_cast<size_t>(tokens), false);
    const std::vector<float> scores = execution.read(instance_of(w, step, op.inputs[0]));
    const std::vector<float> indices = execution.read(instance_of(w, step, op.outputs[0]));
    const std::vector<float> counts = execution.read(instance_of(w, step, op.outputs[2]));
    layer.weights.assign(scores.begin(), scores.begin() + tokens);
    for (std::int64_t k = 0; k < static_cast<std::int64_t>(counts[0]); ++k) {
      const auto token = static_cast<std::int64_t>(indices[static_cast<size_t>(k)]);
      if (token < 0 || token >= tokens) throw_internal("a selected row lies outside the first sequence");
      layer.taken[static_cast<size_t>(token)] = true;
    }
  }
  std::vector<LayerRouting> result;
  for (auto& [index, layer] : layers) result.push_back(std::move(layer));
  return result;
}

RoutingRecord routing_record(const std::vector<LayerRouting>& layers) {
  RoutingRecord routing;
  for (const LayerRouting& layer : layers) {
    routing.tokens = static_cast<std::int64_t>(layer.taken.size());
    RoutingRecord::Layer each{layer.layer, layer.routed, {}, layer.weights};
    if (layer.routed)
      for (bool taken : layer.taken) each.taken.push_back(taken ? '1' : '0');
    routing.layers.push_back(std::move(each));
  }
  routing.make_histogram();
  return routing;
}

void append(std::vector<LayerRouting>& layers, const std::vector<LayerRouting>& later) {
  if (layers.empty()) layers.resize(later.size());
  if (layers.size() != later.size()) throw_internal("two passes of one run have other layers");
  for (size_t i = 0; i < layers.size(); ++i) {
    layers[i].layer = later[i].layer;
    layers[i].routed = later[i].routed;
    layers[i].taken.insert(layers[i].taken.end(), later[i].taken.begin(), later[i].taken.end());
    layers[i].weights.insert(layers[i].weights.end(), later[i].weights.begin(), later[i].weights.end());
  }
}

void add_text(RoutingRecord& routing, const std::vector<std::int32_t>& tokens, const std::vector<TokenClass>& classes) {
  for (const std::int32_t token : tokens) routing.labels.push_back(token_label(token));
  std::vector<bool> classified(tokens.size(), false);
  const auto add_class = [&](const std::string& name, const std::vector<size_t>& members) {
    std::int64_t taken = 0, all = 0;
    for (const RoutingRecord::Layer& layer : routing.layers) {
      if (!layer.routed) continue;
      for (size_t token : members) taken += layer.taken[token] == '1';
      all += static_cast<std::int64_t>(members.size());
    }
    if (all > 0) routing.classes.push_back({name, static_cast<std::int64_t>(members.size()), static_cast<double>(taken) / static_cast<double>(all)});
  };
  for (const TokenClass& entry : classes) {
    std::vector<size_t> members;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] < 0 || tokens[i] > 255 || entry.members.find(static_cast<char>(tokens[i])) == std::string::npos) continue;
      members.push_back(i);
      classified[i] = true;
    }
    add_class(entry.name, members);
  }
  std::vector<size_t> rest;
  for (size_t i = 0; i < tokens.size(); ++i)
    if (!classified[i]) rest.push_back(i);
  add_class("other", rest);
}

}  // namespace fathom
