#include "reports/routing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lib/error.hpp"
#include "reports/json_reader.hpp"
#include "reports/json_writer.hpp"

namespace fathom {
namespace {

constexpr std::size_t kHistogramBins = 16;

BarPlot histogram(const RoutingRecord& routing, const std::string& key_suffix) {
  BarPlot plot;
  plot.key = "router-weights" + key_suffix;
  plot.title = "Router weights";
  plot.value_label = "log10 of (1 + count)";
  plot.series.push_back({"tokens", {}});
  const double width = (routing.high - routing.low) / static_cast<double>(std::max<std::size_t>(1, routing.counts.size()));
  for (std::size_t b = 0; b < routing.counts.size(); ++b) {
    const double from = routing.low + width * static_cast<double>(b);
    plot.categories.push_back(fmt::format("{:.3g} to {:.3g}", from, from + width));
    plot.series[0].values.push_back(std::log10(1.0 + static_cast<double>(routing.counts[b])));
  }
  return plot;
}

}  // namespace

void RoutingRecord::make_histogram() {
  counts.clear();
  bool any = false;
  for (const Layer& each : layers)
    for (double w : each.weights) {
      low = any ? std::min(low, w) : w;
      high = any ? std::max(high, w) : w;
      any = true;
    }
  if (!any) return;
  if (high <= low) high = low + 1e-6;
  counts.assign(kHistogramBins, 0);
  for (const Layer& each : layers)
    for (double w : each.weights) ++counts[std::min(kHistogramBins - 1, static_cast<std::size_t>((w - low) / (high - low) * kHistogramBins))];
}

void add_routing(Document& document, const RoutingRecord& routing, const std::string& label, const std::string& key_suffix) {
  if (routing.empty()) return;
  RoutingMap map;
  map.key = "routing-map" + key_suffix;
  map.title = "Which token took which block";
  map.tokens = routing.labels;
  RoutingMap::Frame frame;
  frame.label = label;
  BarPlot participation;
  participation.key = "participation" + key_suffix;
  participation.title = "Participation per block";
  participation.value_label = "share of tokens";
  participation.unit = Unit::kPercent;
  participation.series.push_back({"tokens", {}});
  const auto tokens = static_cast<std::size_t>(routing.tokens);
  const bool weighted = std::any_of(routing.layers.begin(), routing.layers.end(), [](const auto& each) { return !each.weights.empty(); });
  for (const RoutingRecord::Layer& layer : routing.layers) {
    map.blocks.push_back(fmt::format("block {}", layer.layer));
    std::vector<RoutingMap::State> states(tokens, RoutingMap::State::kFull);
    double taken = layer.routed ? 0 : static_cast<double>(tokens);
    if (layer.routed)
      for (std::size_t t = 0; t < tokens; ++t) {
        states[t] = layer.taken[t] == '1' ? RoutingMap::State::kProcessed : RoutingMap::State::kSkipped;
        taken += layer.taken[t] == '1';
      }
    frame.states.push_back(std::move(states));
    if (weighted) frame.weights.push_back(layer.weights.empty() ? std::vector<double>(tokens, 1.0) : layer.weights);
    participation.categories.push_back(fmt::format("block {}{}", layer.layer, layer.routed ? "" : " (full)"));
    participation.series[0].values.push_back(tokens == 0 ? 0 : taken / static_cast<double>(tokens));
  }
  map.frames.push_back(std::move(frame));
  document.add(std::move(map));
  document.add(std::move(participation));
  if (!routing.counts.empty()) document.add(histogram(routing, key_suffix));
}

void write_routing(JsonWriter& json, const RoutingRecord& routing) {
  json.begin_object().member("tokens", static_cast<u128>(routing.tokens)).key("blocks").begin_array();
  for (const RoutingRecord::Layer& layer : routing.layers) {
    json.begin_object().member("layer", static_cast<u128>(layer.layer));
    if (layer.routed) json.member("taken", layer.taken);
    json.end_object();
  }
  json.end_array().key("weights").begin_object().member("low", routing.low).member("high", routing.high).key("counts").begin_array();
  for (std::uint64_t count : routing.counts) json.value(static_cast<u128>(count));
  json.end_array().end_object().end_object();
}

RoutingRecord read_routing(const JsonValue& object) {
  RoutingRecord routing;
  const u128 tokens = object.at("tokens").as_u128("routing.tokens");
  for (const JsonValue& block : object.at("blocks").as_array("routing.blocks")) {
    RoutingRecord::Layer layer;
    layer.layer = static_cast<int>(block.at("layer").as_u128("layer"));
    if (const JsonValue* taken = block.find("taken")) {
      layer.routed = true;
      layer.taken = taken->as_string("taken");
      if (static_cast<u128>(layer.taken.size()) != tokens || layer.taken.find_first_not_of("01") != std::string::npos)
        throw_input("routing: `taken` is not one 0 or 1 per token", {"", 0, "routing.blocks"});
    }
    routing.layers.push_back(std::move(layer));
  }
  if (tokens > 100'000'000) throw_input("routing: too many tokens", {"", 0, "routing.tokens"});
  routing.tokens = static_cast<std::int64_t>(tokens);
  const JsonValue& weights = object.at("weights");
  routing.low = weights.at("low").as_double("low");
  routing.high = weights.at("high").as_double("high");
  for (const JsonValue& count : weights.at("counts").as_array("counts")) routing.counts.push_back(static_cast<std::uint64_t>(count.as_u128("counts")));
  return routing;
}

}  // namespace fathom
