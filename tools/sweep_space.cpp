#include "tools/sweep_space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "lib/error.hpp"
#include "models/registry.hpp"
#include "tools/idle_flags.hpp"

namespace fathom {
namespace {

constexpr std::uint64_t kMostRows = std::uint64_t{1} << 62;

std::uint64_t times(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) || product > kMostRows) throw_input("the sweep has more than 4e18 configurations");
  return product;
}
std::uint64_t checked_values(std::uint64_t a, std::uint64_t b) {
  if (a + b > kMostRows) throw_input("the sweep has more than 4e18 configurations");
  return a + b;
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

std::string without_section(const std::string& key) {
  const std::size_t dot = key.find('.');
  return dot == std::string::npos ? key : key.substr(dot + 1);
}

// Keys whose values are lists themselves: their elements are joined by '+', since commas separate the values of an axis.
bool is_list(const std::string& key) {
  const std::string name = without_section(key);
  return name == "expert_loads" || name == "targets";
}

// The values of a --set. Loads without a '+' are one list, as --expert-loads of the other commands takes it: no model has experts that loads of one number describe.
std::vector<std::string> values_of(const std::string& key, const std::string& text) {
  if (without_section(key) != "expert_loads" || text.find('+') != std::string::npos || text.find("none") != std::string::npos || text.find(',') == std::string::npos) return split(text, ',');
  std::string one = text;
  std::replace(one.begin(), one.end(), ',', '+');
  return {one};
}

// Keys of the INI form that change nothing but how many layers of a kind there are, and how many tokens these take.
bool of_family(const std::string& key) {
  const std::string name = without_section(key);
  return name == "layers" || name == "first_dense" || name == "every" || name == "capacity" || name == "slots" || name == "rounding" || name == "min_slots";
}

}  // namespace

void SweepSpace::SetAxis::add(Item item) {
  item.before = size;
  size = checked_values(size, item.range ? item.range->size() : 1);
  items.push_back(std::move(item));
}

const SweepSpace::SetAxis::Item& SweepSpace::SetAxis::item(std::uint64_t at) const {
  return *std::prev(std::upper_bound(items.begin(), items.end(), at, [](std::uint64_t wanted, const Item& each) { return wanted < each.before; }));
}

std::string SweepSpace::SetAxis::text(std::uint64_t at) const {
  const Item& found = item(at);
  return found.range ? std::to_string(found.range->at(at - found.before)) : found.value.text();
}

SweepSpace::SweepSpace(const SweepModelFlags& models, const ScenarioFlags& scenario, bool gpu, const std::string& conventions, std::vector<std::string> machines)
    : gpu_(gpu), machines_(std::move(machines)) {
  add_column("model", Unit::kText, false);
  add_models(models);
  add_scenario(scenario, conventions);
  if (!machines_.empty()) machine_column_ = add_column("machine", Unit::kText, false);
  for (const PhasePart& part : phases_) rows_per_network_ += part.rows;
  rows_ = times(times(networks_, rows_per_network_), std::max<std::uint64_t>(1, machines_.size()));
  find_line();
  find_family();
}

// Whether many configurations differ in layers and shares alone.
void SweepSpace::find_family() {
  constexpr std::uint64_t kMostVariants = 64, kFewest = 16;
  std::uint64_t members = 1, participations = 1;
  const auto grow = [&](std::uint64_t by) { members = by > kFewest ? kFewest : members * by; };
  for (const ModelAxis* axis : {&every_, &capacity_, &slots_, &rounding_})
    if (members < kFewest) grow(axis->size());
  for (std::size_t i = 0; i < sets_.size(); ++i)
    if (members < kFewest && of_family(overrides_[0].keys()[i])) grow(sets_[i].size);
  for (const Axis& axis : axes_)
    if (axis.slot == Slot::kParticipation) participations = axis.size();
  if (members < kFewest) grow(participations);
  families_ = members >= kFewest && rows_per_network_ / participations <= kMostVariants;
}

// The network's number without the digits that a family leaves open.
std::uint64_t SweepSpace::family_of(std::uint64_t index) const {
  std::uint64_t family = 0;
  const auto digit = [&](std::uint64_t size, bool open) {
    if (!open) family = family * size + index % size;
    index /= size;
  };
  digit(gate_.size(), false);
  for (const ModelAxis* axis : {&rounding_, &slots_, &capacity_, &every_}) digit(axis->size(), true);
  for (std::size_t i = sets_.size(); i-- > 0;) digit(sets_[i].size, of_family(overrides_[0].keys()[i]));
  return family * models_.size() + index;
}

// Whether the values are whole numbers in even steps.
bool SweepSpace::even(const SetAxis& axis) {
  if (axis.items.size() == 1) return axis.items[0].range && axis.items[0].range->one_range();
  constexpr std::uint64_t kMost = std::uint64_t{1} << 20;  // values of a list that are looked at
  if (axis.size > kMost) return false;
  std::int64_t before = 0, step = 0;
  for (std::uint64_t i = 0; i < axis.size; ++i) {
    const std::string text = axis.text(i);
    std::int64_t size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (axis.item(i).times != 0 || error != std::errc() || end != text.data() + text.size()) return false;
    if (i == 1) step = size - before;
    if (i > 1 && size - before != step) return false;
    before = size;
  }
  return true;
}

// The innermost axis of networks along which many differ in one size, in even steps; few configurations may lie between two of them.
void SweepSpace::find_line() {
  constexpr std::uint64_t kMostVariants = 64, kFewest = 8;
  std::uint64_t inner = 1;
  for (const ModelAxis* axis : {&every_, &capacity_, &slots_, &rounding_, &gate_}) {
    if (inner > kMostVariants) return;
    inner *= axis->size();
  }
  for (std::size_t i = sets_.size(); i-- > 0 && inner <= kMostVariants && rows_per_network_ <= kMostVariants && inner * rows_per_network_ <= kMostVariants; inner *= sets_[i].size) {
    if (sets_[i].size < kFewest || of_family(overrides_[0].keys()[i]) || !even(sets_[i])) continue;
    line_size_ = sets_[i].size;
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
  options.strict = flags.strict;
  options.mtp = std::any_of(flags.set.begin(), flags.set.end(), [](const std::string& text) { return text.starts_with("mtp=") || text.starts_with("network.mtp="); });
  for (const std::string& model : flags.models) {
    models_.push_back(load_network(model, options));
    for (const std::string& note : models_.back().notes) notes_.push_back(models_.back().name + ": " + note);
  }
  for (const std::string& text : idle_strict(flags.strict, flags.models)) notes_.push_back(text);
  networks_ = models_.size();
  std::vector<std::string> keys;
  for (const std::string& text : flags.set) add_set(text, keys);
  if (!keys.empty()) overrides_.emplace_back(keys);

  twin_ = !flags.mod_every.empty() || !flags.capacity.empty() || !flags.slots.empty();
  if (!twin_ && (!flags.rounding.empty() || !flags.gate.empty()))
    throw_input("--rounding and --gate describe a MoD twin", {"", 0, ""}, "add --mod-every M and --capacity F");
  for (const std::string& text : idle_twin(!flags.slots.empty(), !flags.rounding.empty())) notes_.push_back(text);
  if (!flags.capacity.empty() && !flags.slots.empty()) throw Error(ErrorKind::kUsage, "--capacity and --slots exclude each other");
  const auto axis = [&](ModelAxis& target, const char* column, Unit unit, bool shown) {
    if (shown) target.column = add_column(column, unit, unit != Unit::kText);
    networks_ = times(networks_, target.size());
  };
  every_.numbers = flags.mod_every.empty() ? NumberList(2) : NumberList::parse(flags.mod_every, "--mod-every");
  axis(every_, "mod_every", Unit::kCount, twin_);
  if (flags.slots.empty()) capacity_.fractions = flags.capacity.empty() ? FractionList({1, 8}) : FractionList::parse(flags.capacity, "--capacity");
  else slots_.numbers = NumberList::parse(flags.slots, "--slots");
  axis(capacity_, "capacity", Unit::kRatio, twin_ && flags.slots.empty());
  axis(slots_, "slots", Unit::kCount, !flags.slots.empty());
  if (!flags.rounding.empty()) rounding_.words = split(flags.rounding, ',');
  if (!flags.gate.empty()) gate_.words = split(flags.gate, ',');
  axis(rounding_, "rounding", Unit::kText, !flags.rounding.empty());
  axis(gate_, "gate", Unit::kText, !flags.gate.empty());
  for (const std::string& word : rounding_.words)
    if (!word.empty() || !flags.rounding.empty()) parse_rounding(word);
  for (const std::string& word : gate_.words) parse_gate(word);
}

void SweepSpace::add_set(const std::string& text, std::vector<std::string>& keys) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    throw Error(ErrorKind::kUsage, fmt::format("--set: '{}' is not KEY=VALUES", text), {}, "write --set width=512:2048:256 or --set mlp=4*width");
  const std::string key = text.substr(0, equals);
  // What describes a run, not a network, is a flag of its own.
  for (const char* of_run : {"phase", "batch", "seq", "context", "past", "prompt", "tokens", "dtype", "logits", "routing", "participation", "recompute"})
    if (key == of_run) throw_input(fmt::format("'{}' is no key of a network", key), {"", 0, "set"}, fmt::format("write --{} {}", key, text.substr(equals + 1)));
  const Where where{"", 0, key};
  SetAxis values;
  bool number = true;
  for (const std::string& item : values_of(key, text.substr(equals + 1))) {
    if (item.empty()) throw Error(ErrorKind::kUsage, fmt::format("--set: '{}' has an empty value", text));
    std::int64_t multiply = 0, divide = 1;
    if (key != "width" && relation(item, multiply, divide)) {
      values.add({IniValue(item, where), multiply, divide, {}});
    } else if (item.find(':') != std::string::npos) {
      values.add({IniValue(item, where), 0, 1, NumberList::parse(item, "--set " + key)});
    } else {
      number = number && item.find_first_not_of("0123456789") == std::string::npos;
      values.add({IniValue(item, where), 0, 1, {}});
    }
  }
  keys.push_back(key);
  values.column = add_column(key, number ? Unit::kCount : Unit::kText, number);
  networks_ = times(networks_, values.size);
  sets_.push_back(std::move(values));
}

void SweepSpace::set_network(std::uint64_t index, SweepPoint& point) const {
  point.network_index = index;
  point.network = nullptr;
  point.error.clear();
  const auto digit = [&](std::uint64_t size) {
    const std::uint64_t value = size == 1 ? 0 : index % size;
    if (size != 1) index /= size;
    return value;
  };
  const auto shown = [&](const ModelAxis& axis) -> std::string* { return axis.column >= 0 ? &point.keys[static_cast<std::size_t>(axis.column)] : nullptr; };
  const auto word = [&](const ModelAxis& axis) -> const std::string& {
    const std::string& found = axis.words[static_cast<std::size_t>(digit(axis.size()))];
    if (std::string* text = shown(axis)) *text = found;
    return found;
  };
  const auto number = [&](const ModelAxis& axis) {
    const std::int64_t found = axis.numbers->at(digit(axis.size()));
    if (std::string* text = shown(axis)) *text = std::to_string(found);
    return found;
  };
  const std::string& gate = word(gate_);
  const std::string& rounding = word(rounding_);
  Route route;
  if (slots_.numbers) route.slots = number(slots_);
  if (capacity_.fractions) {
    route.capacity = capacity_.fractions->at(digit(capacity_.size()));
    if (std::string* text = shown(capacity_)) *text = route.capacity ? share_text(*route.capacity) : "";
  }
  const std::int64_t every = number(every_);
  const bool routed = twin_ && (route.slots || route.capacity);
  if (!routed && every_.column >= 0) shown(every_)->clear();
  std::vector<IniValue> values;
  std::vector<std::uint64_t> chosen(sets_.size());
  for (std::size_t i = sets_.size(); i-- > 0;) chosen[i] = digit(sets_[i].size);
  const Network& base = models_[static_cast<std::size_t>(index)];
  point.keys[0] = base.name;
  try {
    std::int64_t width = base.width;
    for (std::size_t i = 0; i < chosen.size(); ++i)
      if (overrides_[0].keys()[i] == "width" || overrides_[0].keys()[i] == "network.width") width = IniValue(sets_[i].text(chosen[i]), sets_[i].items[0].value.where()).integer(1);
    const Network* made = &base;
    if (!chosen.empty()) {
      for (std::size_t i = 0; i < chosen.size(); ++i) {
        const SetAxis::Item& item = sets_[i].item(chosen[i]);
        std::string& text = point.keys[static_cast<std::size_t>(sets_[i].column)];
        text.clear();
        if (item.times > 0) {
          if (width > (std::int64_t{1} << 40) || width * item.times % item.over != 0)
            throw_input(fmt::format("{} of a width of {} is no whole number", item.value.text(), width), item.value.where());
          text = std::to_string(width * item.times / item.over);
        } else {
          text = sets_[i].text(chosen[i]);
        }
        values.emplace_back(text, item.value.where());
        if (is_list(overrides_[0].keys()[i])) {
          std::string elements = text;
          std::replace(elements.begin(), elements.end(), '+', ',');
          values.back() = IniValue(elements, item.value.where());
        }
      }
      overrides_[0].apply(base, values, point.unrouted);
      made = &point.unrouted;
    }
    if (routed) {
      if (!rounding.empty()) route.rounding = parse_rounding(rounding);
      route.gate = parse_gate(gate);
      point.storage = with_routes(*made, every, route);
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
