#include "tools/sweep_space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "lib/error.hpp"
#include "models/registry.hpp"
#include "reports/json_writer.hpp"
#include "tools/idle_flags.hpp"

namespace fathom {
namespace {

std::uint64_t times(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) || product > (std::uint64_t{1} << 62)) throw_input("the sweep has more than 4e18 configurations");
  return product;
}

std::string decimal(const std::string& fraction) { return shortest(parse_fraction(fraction).value()); }

std::vector<std::string> numbers(const std::string& text, std::string_view flag) {
  std::vector<std::string> texts;
  for (std::int64_t value : parse_range(text, flag)) texts.push_back(std::to_string(value));
  return texts;
}

// "width", "4*width", "width/64", "3*width/2".
bool relation(const std::string& text, std::int64_t& multiply, std::int64_t& divide) {
  const std::size_t at = text.find("width");
  if (at == std::string::npos) return false;
  multiply = divide = 1;
  const auto number = [&](std::string_view part, std::int64_t& out) {
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), out);
    if (error != std::errc() || end != part.data() + part.size() || out < 1 || out > 1'000'000)
      throw Error(ErrorKind::kUsage, fmt::format("--set: '{}' is no relation to the width", text), {}, "write 4*width, width/64 or 8*width/3");
  };
  std::string_view before(text.data(), at);
  std::string_view after(text.data() + at + 5, text.size() - at - 5);
  if (!before.empty()) {
    if (before.back() != '*') number("x", multiply);
    number(before.substr(0, before.size() - 1), multiply);
  }
  if (!after.empty() && after.front() == '*' && before.empty()) {
    const std::size_t slash = after.find('/');
    number(after.substr(1, slash == std::string_view::npos ? slash : slash - 1), multiply);
    after = slash == std::string_view::npos ? std::string_view() : after.substr(slash);
  }
  if (!after.empty()) {
    if (after.front() != '/') number("x", divide);
    number(after.substr(1), divide);
  }
  return true;
}

// Keys of the INI form that change nothing but how many layers of a kind there are, and how many tokens these take.
bool of_family(const std::string& key) {
  const std::size_t dot = key.find('.');
  const std::string name = dot == std::string::npos ? key : key.substr(dot + 1);
  return name == "layers" || name == "capacity" || name == "slots" || name == "rounding" || name == "min_slots";
}

// Whole numbers in even steps.
bool even_steps(const std::vector<std::int64_t>& sizes) {
  for (std::size_t i = 2; i < sizes.size(); ++i)
    if (sizes[i] - sizes[i - 1] != sizes[1] - sizes[0]) return false;
  return true;
}

}  // namespace

std::vector<std::string> fraction_list(const std::string& text, std::string_view flag) {
  std::vector<std::string> values;
  for (const std::string& item : split(text, ',')) {
    if (item == "none") {
      values.push_back(item);
      continue;
    }
    const std::vector<std::string> parts = split(item, ':');
    if (parts.size() == 1) {
      values.push_back(parse_fraction_flag(item, flag).str());
      continue;
    }
    if (parts.size() != 3) throw Error(ErrorKind::kUsage, fmt::format("{}: '{}' is not a range", flag, item), {}, "write first:last:step, such as 0.125:0.5:0.125");
    const Fraction first = parse_fraction_flag(parts[0], flag), last = parse_fraction_flag(parts[1], flag), step = parse_fraction_flag(parts[2], flag);
    if (step.num <= 0) throw_input(fmt::format("the range {} never ends", item), {"", 0, std::string(flag)});
    if (last.value() < first.value()) throw_input(fmt::format("the range {} runs backwards", item), {"", 0, std::string(flag)});
    if ((last.value() - first.value()) / step.value() > 1e6) throw_input(fmt::format("the range {} has more than a million values", item), {"", 0, std::string(flag)});
    if (first.den > 1'000'000 || step.den > 1'000'000) throw_input(fmt::format("the fractions of {} are too fine", item), {"", 0, std::string(flag)});
    for (std::int64_t i = 0;; ++i) {
      const Fraction value = make_fraction(first.num * step.den + i * step.num * first.den, first.den * step.den);
      if (value.value() > last.value()) break;
      values.push_back(value.str());
    }
  }
  return values;
}

SweepSpace::SweepSpace(const SweepModelFlags& models, const ScenarioFlags& scenario, bool gpu) : gpu_(gpu) {
  add_column("model", Unit::kText, false);
  add_models(models);
  add_scenario(scenario);
  for (const PhasePart& part : phases_) rows_per_network_ += part.rows;
  rows_ = times(networks_, rows_per_network_);
  find_line();
  find_family();
}

// Whether many configurations differ in layers and shares alone.
void SweepSpace::find_family() {
  constexpr std::uint64_t kMostVariants = 64, kFewest = 16;
  std::uint64_t members = 1, participations = 1;
  const auto grow = [&](std::uint64_t by) { members = by > kFewest ? kFewest : members * by; };
  for (const ModelAxis* axis : {&every_, &capacity_, &slots_, &rounding_})
    if (members < kFewest) grow(axis->values.size());
  for (std::size_t i = 0; i < set_values_.size(); ++i)
    if (members < kFewest && of_family(overrides_[0].keys()[i])) grow(set_values_[i].size());
  for (const Axis& axis : axes_)
    if (axis.slot == Slot::kParticipation) participations = axis.size();
  if (members < kFewest) grow(participations);
  families_ = members >= kFewest && rows_per_network_ / participations <= kMostVariants;
}

// The network's number without the digits that a family leaves open.
std::uint64_t SweepSpace::family_of(std::uint64_t index) const {
  std::uint64_t family = 0;
  const auto digit = [&](std::size_t size, bool open) {
    if (!open) family = family * size + index % size;
    index /= size;
  };
  digit(gate_.values.size(), false);
  for (const ModelAxis* axis : {&rounding_, &slots_, &capacity_, &every_}) digit(axis->values.size(), true);
  for (std::size_t i = set_values_.size(); i-- > 0;) digit(set_values_[i].size(), of_family(overrides_[0].keys()[i]));
  return family * models_.size() + index;
}

// The innermost axis of networks along which many differ in one size, in even steps; few configurations may lie between two of them.
void SweepSpace::find_line() {
  constexpr std::uint64_t kMostVariants = 64, kFewest = 8;
  std::uint64_t inner = 1;
  for (const ModelAxis* axis : {&every_, &capacity_, &slots_, &rounding_, &gate_}) {
    if (inner > kMostVariants) return;
    inner *= axis->values.size();
  }
  for (std::size_t i = set_values_.size(); i-- > 0 && inner <= kMostVariants && inner * rows_per_network_ <= kMostVariants; inner *= set_values_[i].size()) {
    if (set_values_[i].size() < kFewest || of_family(overrides_[0].keys()[i])) continue;
    std::vector<std::int64_t> sizes;
    for (const SetValue& each : set_values_[i]) {
      std::int64_t size = 0;
      const std::string& text = each.value.text();
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
      if (each.times == 0 && error == std::errc() && end == text.data() + text.size()) sizes.push_back(size);
    }
    if (sizes.size() != set_values_[i].size() || !even_steps(sizes)) continue;
    line_size_ = sizes.size();
    line_inner_ = inner;
    return;
  }
}

int SweepSpace::add_column(const std::string& key, Unit unit, bool number) {
  for (const SweepColumn& column : columns_)
    if (column.key == key) throw_input(fmt::format("'{}' is varied twice", key), {}, "name it once, as a flag or with --set");
  columns_.push_back({key, unit, number});
  return static_cast<int>(columns_.size() - 1);
}

void SweepSpace::add_models(const SweepModelFlags& flags) {
  HfOptions options;
  options.mtp = std::any_of(flags.set.begin(), flags.set.end(), [](const std::string& text) { return text.starts_with("mtp=") || text.starts_with("network.mtp="); });
  for (const std::string& model : flags.models) {
    models_.push_back(load_network(model, options));
    for (const std::string& note : models_.back().notes) notes_.push_back(models_.back().name + ": " + note);
  }
  networks_ = models_.size();
  std::vector<std::string> keys;
  for (const std::string& text : flags.set) add_set(text, keys);
  if (!keys.empty()) overrides_.emplace_back(keys);

  twin_ = !flags.mod_every.empty() || !flags.capacity.empty() || !flags.slots.empty();
  if (!twin_ && (!flags.rounding.empty() || !flags.gate.empty()))
    throw_input("--rounding and --gate describe a MoD twin", {"", 0, ""}, "add --mod-every M and --capacity F");
  for (const std::string& text : idle_twin(!flags.slots.empty(), !flags.rounding.empty())) notes_.push_back(text);
  if (!flags.capacity.empty() && !flags.slots.empty()) throw Error(ErrorKind::kUsage, "--capacity and --slots exclude each other");
  const auto axis = [&](ModelAxis& target, const char* column, Unit unit, bool number, std::vector<std::string> values, bool shown) {
    target.values = std::move(values);
    target.texts = target.values;
    if (shown) target.column = add_column(column, unit, number);
    networks_ = times(networks_, target.values.size());
  };
  axis(every_, "mod_every", Unit::kCount, true, flags.mod_every.empty() ? std::vector<std::string>{"2"} : numbers(flags.mod_every, "--mod-every"), twin_);
  std::vector<std::string> capacities = {flags.slots.empty() ? "1/8" : ""};
  if (!flags.capacity.empty()) capacities = fraction_list(flags.capacity, "--capacity");
  axis(capacity_, "capacity", Unit::kRatio, true, capacities, twin_ && flags.slots.empty());
  for (std::string& text : capacity_.texts) text = text.empty() || text == "none" ? "" : decimal(text);
  axis(slots_, "slots", Unit::kCount, true, flags.slots.empty() ? std::vector<std::string>{""} : numbers(flags.slots, "--slots"), !flags.slots.empty());
  const auto words = [](const std::string& text) { return text.empty() ? std::vector<std::string>{""} : split(text, ','); };
  axis(rounding_, "rounding", Unit::kText, false, words(flags.rounding), !flags.rounding.empty());
  axis(gate_, "gate", Unit::kText, false, words(flags.gate), !flags.gate.empty());
  for (const std::string& word : rounding_.values)
    if (!word.empty()) parse_rounding(word);
  for (const std::string& word : gate_.values) parse_gate(word);
}

void SweepSpace::add_set(const std::string& text, std::vector<std::string>& keys) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    throw Error(ErrorKind::kUsage, fmt::format("--set: '{}' is not KEY=VALUES", text), {}, "write --set width=512:2048:256 or --set mlp=4*width");
  const std::string key = text.substr(0, equals);
  const Where where{"", 0, key};
  std::vector<SetValue> values;
  bool number = true;
  for (const std::string& item : split(text.substr(equals + 1), ',')) {
    if (item.empty()) throw Error(ErrorKind::kUsage, fmt::format("--set: '{}' has an empty value", text));
    std::int64_t multiply = 0, divide = 1;
    if (key != "width" && relation(item, multiply, divide)) {
      values.push_back({IniValue(item, where), multiply, divide});
    } else if (item.find(':') != std::string::npos) {
      for (const std::string& each : numbers(item, "--set " + key)) values.push_back({IniValue(each, where)});
    } else {
      number = number && item.find_first_not_of("0123456789") == std::string::npos;
      values.push_back({IniValue(item, where)});
    }
  }
  keys.push_back(key);
  set_columns_.push_back(add_column(key, number ? Unit::kCount : Unit::kText, number));
  networks_ = times(networks_, values.size());
  set_values_.push_back(std::move(values));
}

void SweepSpace::set_network(std::uint64_t index, SweepPoint& point) const {
  point.network_index = index;
  point.network = nullptr;
  point.error.clear();
  const auto digit = [&](std::size_t size) {
    const std::size_t value = size == 1 ? 0 : static_cast<std::size_t>(index % size);
    if (size != 1) index /= size;
    return value;
  };
  const auto pick = [&](const ModelAxis& axis) -> const std::string& {
    const std::size_t at = digit(axis.values.size());
    if (axis.column >= 0) point.keys[static_cast<std::size_t>(axis.column)] = axis.texts[at];
    return axis.values[at];
  };
  const std::string& gate = pick(gate_);
  const std::string& rounding = pick(rounding_);
  const std::string& slots = pick(slots_);
  const std::string& capacity = pick(capacity_);
  const std::string& every = pick(every_);
  const bool routed = twin_ && capacity != "none";
  if (!routed && every_.column >= 0) point.keys[static_cast<std::size_t>(every_.column)].clear();
  std::vector<IniValue> values;
  std::vector<const SetValue*> chosen(set_values_.size());
  for (std::size_t i = set_values_.size(); i-- > 0;) chosen[i] = &set_values_[i][digit(set_values_[i].size())];
  const Network& base = models_[static_cast<std::size_t>(index)];
  point.keys[0] = base.name;
  try {
    std::int64_t width = base.width;
    for (std::size_t i = 0; i < chosen.size(); ++i)
      if (overrides_[0].keys()[i] == "width" || overrides_[0].keys()[i] == "network.width") width = chosen[i]->value.integer(1);
    const Network* made = &base;
    if (!chosen.empty()) {
      for (std::size_t i = 0; i < chosen.size(); ++i) {
        const SetValue& set = *chosen[i];
        std::string& text = point.keys[static_cast<std::size_t>(set_columns_[i])];
        text.clear();
        if (set.times == 0) {
          text = set.value.text();
          values.push_back(set.value);
          continue;
        }
        if (width > (std::int64_t{1} << 40) || width * set.times % set.over != 0)
          throw_input(fmt::format("{} of a width of {} is no whole number", set.value.text(), width), set.value.where());
        text = std::to_string(width * set.times / set.over);
        values.emplace_back(text, set.value.where());
      }
      overrides_[0].apply(base, values, point.unrouted);
      made = &point.unrouted;
    }
    if (routed) {
      Route route;
      if (!slots.empty()) route.slots = std::stoll(slots);
      else route.capacity = parse_fraction(capacity);
      if (!rounding.empty()) route.rounding = parse_rounding(rounding);
      route.gate = parse_gate(gate);
      point.storage = with_routes(*made, std::stoll(every), route);
      made = &point.storage;
    }
    if (made == &base) validate(base);  // the others were validated when they were made
    point.network = made;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kInternal) throw;
    point.error = error.where().key.empty() ? error.message() : error.where().key + ": " + error.message();
  }
}

}  // namespace fathom
