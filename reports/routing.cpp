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
  plot.value_label = "log10 of (1 + n), n scores";
  plot.series.push_back({"tokens", {}});
  const double width = (routing.high - routing.low) / static_cast<double>(std::max<std::size_t>(1, routing.counts.size()));
  // All edges with as many decimals as the first two digits of a bin's width need.
  const int decimals = width > 0 && std::isfinite(width) ? std::clamp(1 - static_cast<int>(std::floor(std::log10(width))), 0, 12) : 3;
  const auto edge = [&](double value) {
    std::string text = fmt::format("{:.{}f}", value, decimals);
    if (text[0] == '-' && text.find_first_not_of("-0.") == std::string::npos) text.erase(0, 1);
    return text;
  };
  for (std::size_t b = 0; b < routing.counts.size(); ++b) {
    const double from = routing.low + width * static_cast<double>(b);
    plot.categories.push_back(fmt::format("{} to {}", edge(from), edge(from + width)));
    plot.series[0].values.push_back(std::log10(1.0 + static_cast<double>(routing.counts[b])));
    plot.shown.push_back(fmt::format("n = {}", routing.counts[b]));
  }
  return plot;
}

BarPlot class_bars(const RoutingRecord& routing, const std::string& key_suffix) {
  BarPlot plot;
  plot.key = "participation-by-class" + key_suffix;
  plot.title = "Participation per token class, routed blocks";
  plot.caption = "Descriptive only: an untrained router knows nothing of these classes.";
  plot.value_label = "share of the class's tokens";
  plot.unit = Unit::kPercent;
  plot.series.push_back({"tokens", {}});
  for (const RoutingRecord::ClassShare& each : routing.classes) {
    plot.categories.push_back(fmt::format("{} ({})", each.name, each.tokens));
    plot.series[0].values.push_back(each.participation);
  }
  return plot;
}

constexpr double kWritten = 1e-9;  // how far a share that was read may be from the one that follows: it was written to 17 digits

[[noreturn]] void contradicts(const std::string& what, const std::string& key) { throw_input("routing: " + what, {"", 0, "routing/" + key}, "the file was changed or damaged: save the record again"); }

}  // namespace

double RoutingRecord::Layer::participation(std::int64_t all) const {
  if (all <= 0) return 0;
  return routed ? static_cast<double>(std::count(taken.begin(), taken.end(), '1')) / static_cast<double>(all) : 1.0;
}

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
  map.prompt = static_cast<std::size_t>(routing.prompt);
  if (routing.prompt > 0) map.caption = fmt::format("Tokens 0 to {} are the prompt, those from {} on were generated one by one; the last one passes no block.", routing.prompt - 1, routing.prompt);
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
    if (layer.routed)
      for (std::size_t t = 0; t < tokens; ++t) states[t] = layer.taken[t] == '1' ? RoutingMap::State::kProcessed : RoutingMap::State::kSkipped;
    frame.states.push_back(std::move(states));
    if (weighted) frame.weights.push_back(layer.weights.empty() ? std::vector<double>(tokens, 1.0) : layer.weights);
    participation.categories.push_back(fmt::format("block {}{}", layer.layer, layer.routed ? "" : " (full)"));
    participation.series[0].values.push_back(layer.participation(routing.tokens));
  }
  map.frames.push_back(std::move(frame));
  document.add(std::move(map));
  document.add(std::move(participation));
  if (!routing.counts.empty()) document.add(histogram(routing, key_suffix));
  if (!routing.classes.empty()) document.add(class_bars(routing, key_suffix));
}

ReportTable routing_table(const RoutingRecord& routing) {
  ReportTable table("routing", "Which token took which block");
  const bool labelled = !routing.labels.empty();
  for (const std::string_view key : {"block", "token", "token_text", "generated", "routed", "taken", "router_weight"})
    if ((labelled || key != "token_text") && (routing.prompt > 0 || key != "generated")) table.add_column(key);
  for (const RoutingRecord::Layer& layer : routing.layers)
    for (std::int64_t t = 0; t < routing.tokens; ++t) {
      const auto at = static_cast<std::size_t>(t);
      std::vector<Cell> row = {Cell::count(static_cast<u128>(layer.layer)), Cell::count(static_cast<u128>(t))};
      if (labelled) row.push_back(Cell::text(routing.labels[at]));
      if (routing.prompt > 0) row.push_back(Cell::count(t >= routing.prompt ? 1 : 0));
      row.push_back(Cell::count(layer.routed ? 1 : 0));
      row.push_back(Cell::count(!layer.routed || layer.taken[at] == '1' ? 1 : 0));
      row.push_back(layer.weights.empty() ? Cell() : Cell::number(layer.weights[at]));
      table.add_row(std::move(row));
    }
  return table;
}

void write_routing(JsonWriter& json, const RoutingRecord& routing) {
  json.begin_object().member("tokens", static_cast<u128>(routing.tokens));
  if (routing.prompt > 0) json.member("prompt", static_cast<u128>(routing.prompt));
  json.key("blocks").begin_array();
  for (const RoutingRecord::Layer& layer : routing.layers) {
    json.begin_object().member("layer", static_cast<u128>(layer.layer));
    json.member("participation", layer.participation(routing.tokens));
    if (layer.routed) json.member("taken", layer.taken);
    if (routing.complete && !layer.weights.empty()) {
      json.key("weights").begin_array();
      for (double weight : layer.weights) json.value(weight);
      json.end_array();
    }
    json.end_object();
  }
  json.end_array();
  if (routing.complete && !routing.labels.empty()) {
    json.key("labels").begin_array();
    for (const std::string& label : routing.labels) json.value(label);
    json.end_array();
  }
  if (!routing.classes.empty()) {
    json.key("classes").begin_array();
    for (const RoutingRecord::ClassShare& each : routing.classes)
      json.begin_object().member("name", each.name).member("tokens", each.tokens).member("participation", each.participation).end_object();
    json.end_array();
  }
  json.key("weights").begin_object().member("low", routing.low).member("high", routing.high).key("counts").begin_array();
  for (std::uint64_t count : routing.counts) json.value(static_cast<u128>(count));
  json.end_array().end_object().end_object();
}

RoutingRecord read_routing(const JsonValue& object) {
  RoutingRecord routing;
  const u128 tokens = object.at("tokens").as_u128("routing.tokens");
  if (tokens > 100'000'000) throw_input("routing: too many tokens", {"", 0, "routing/tokens"});
  routing.tokens = static_cast<std::int64_t>(tokens);
  if (const JsonValue* prompt = object.find("prompt")) {
    const u128 length = prompt->as_u128("routing.prompt");
    if (length > tokens) contradicts("the prompt has more tokens than were routed", "prompt");
    routing.prompt = static_cast<std::int64_t>(length);
  }
  for (const JsonValue& block : object.at("blocks").as_array("routing.blocks")) {
    RoutingRecord::Layer layer;
    layer.layer = static_cast<int>(block.at("layer").as_u128("layer"));
    if (const JsonValue* taken = block.find("taken")) {
      layer.routed = true;
      layer.taken = taken->as_string("taken");
      if (static_cast<u128>(layer.taken.size()) != tokens || layer.taken.find_first_not_of("01") != std::string::npos)
        contradicts("`taken` is not one 0 or 1 per token", "blocks");
    }
    if (const JsonValue* told = block.find("participation")) {
      const double share = told->as_double("participation"), follows = layer.participation(routing.tokens);
      if (!(std::abs(share - follows) <= kWritten)) contradicts(fmt::format("block {} says a participation of {}, but its tokens give {}", layer.layer, share, follows), "blocks");
    }
    if (const JsonValue* scores = block.find("weights")) {
      routing.complete = true;
      for (const JsonValue& score : scores->as_array("weights")) layer.weights.push_back(score.as_double("weights"));
      if (layer.weights.size() != tokens) contradicts("`weights` of a block are not one per token", "blocks");
    }
    routing.layers.push_back(std::move(layer));
  }
  if (const JsonValue* labels = object.find("labels")) {
    routing.complete = true;
    for (const JsonValue& label : labels->as_array("labels")) routing.labels.push_back(label.as_string("labels"));
    if (routing.labels.size() != tokens) contradicts("`labels` are not one per token", "labels");
  }
  if (const JsonValue* classes = object.find("classes"))
    for (const JsonValue& each : classes->as_array("classes")) {
      const u128 members = each.at("tokens").as_u128("tokens");
      const double share = each.at("participation").as_double("participation");
      if (members > tokens || !(share >= 0 && share <= 1)) contradicts("a class has more tokens than there are, or a participation outside 0 to 1", "classes");
      routing.classes.push_back({each.at("name").as_string("name"), static_cast<std::int64_t>(members), share});
    }
  const JsonValue& weights = object.at("weights");
  routing.low = weights.at("low").as_double("low");
  routing.high = weights.at("high").as_double("high");
  if (!(routing.low <= routing.high)) contradicts(fmt::format("the least weight is {}, above the greatest of {}", routing.low, routing.high), "weights");
  u128 counted = 0, scored = 0;
  for (const JsonValue& count : weights.at("counts").as_array("counts")) {
    counted = checked_add(counted, count.as_u128("counts"));
    routing.counts.push_back(static_cast<std::uint64_t>(count.as_u128("counts")));
  }
  for (const RoutingRecord::Layer& layer : routing.layers) scored += layer.routed ? tokens : 0;
  for (std::size_t i = 1; i < routing.layers.size(); ++i)
    if (routing.layers[i].layer <= routing.layers[i - 1].layer) contradicts(fmt::format("block {} stands behind block {}", routing.layers[i].layer, routing.layers[i - 1].layer), "blocks");
  if (routing.complete) {
    RoutingRecord again;
    again.layers = routing.layers;
    again.make_histogram();
    if (again.counts != routing.counts || again.low != routing.low || again.high != routing.high) contradicts("the histogram is not that of the weights", "weights");
  }
  if (counted != scored) contradicts(fmt::format("the histogram counts {} scores, the routed blocks have {}", to_string(counted), to_string(scored)), "weights/counts");
  return routing;
}

}  // namespace fathom
