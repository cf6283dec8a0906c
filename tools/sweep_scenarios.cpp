// The scenario axes of a sweep, and row number -> configuration.
#include <algorithm>
#include <charconv>
#include <limits>

#include "lib/error.hpp"
#include "models/count/convention.hpp"
#include "tools/idle_flags.hpp"
#include "tools/sweep_space.hpp"

namespace fathom {
namespace {

constexpr std::int64_t kDefault = std::numeric_limits<std::int64_t>::min();  // not given: follows from the model, or from another axis

// "f32,bf16" read by the parser of one word.
template <class Parse>
void read_words(const std::string& text, Parse parse, std::vector<std::int64_t>& values, std::vector<std::string>& texts) {
  for (const std::string& word : split(text, ',')) {
    values.push_back(static_cast<std::int64_t>(parse(word)));
    texts.push_back(word);
  }
}

// "none,all,qkv+attention" are three policies; groups alone, "qkv,attention", are one, as for the other commands.
std::vector<std::string> fusion_policies(const std::string& text) {
  std::vector<std::string> words = split(text, ',');
  const bool several = text.find('+') != std::string::npos || std::any_of(words.begin(), words.end(), [](const std::string& word) { return word == "all" || word == "none"; });
  if (several) return words;
  std::string one;
  for (const std::string& word : words) one += (one.empty() ? "" : "+") + word;
  return {one};
}

}  // namespace

void SweepSpace::Axis::text(std::uint64_t at, std::string& out) const {
  if (numbers) {
    char digits[24];
    out.assign(digits, std::to_chars(digits, digits + sizeof digits, numbers->at(at)).ptr);
  } else if (fractions) {
    out = share_text(*fractions->at(at));
  } else if (const std::string& word = texts[static_cast<std::size_t>(at)]; out != word) {
    out = word;
  }
}

SweepSpace::Axis& SweepSpace::add_axis(Slot slot, const char* column, const std::string& text, bool always, Unit unit) {
  Axis axis;
  axis.slot = slot;
  axis.given = !text.empty();
  if (always || axis.given) axis.column = add_column(column, unit, unit != Unit::kText);
  axes_.push_back(std::move(axis));
  return axes_.back();
}

void SweepSpace::add_scenario(const ScenarioFlags& flags, const std::string& conventions) {
  base_.full_mask = flags.full_mask;
  base_.optimizer = !flags.no_optimizer;
  const std::vector<std::string> phases = phases_of(flags);
  for (const std::string& word : phases) {
    PhasePart part;
    part.phase = parse_phase(word);
    phases_.push_back(part);
  }
  for (const std::string& text : idle_in_phases(flags, phases)) notes_.push_back(text);
  for (const Network& network : models_)
    for (const std::string& text : idle_in_network(flags, phases, network, twin_ || network.has_routes()))
      if (std::find(notes_.begin(), notes_.end(), text) == notes_.end()) notes_.push_back(text);
  phase_column_ = add_column("phase", Unit::kText, false);
  const auto has = [&](Phase phase) { return has_phase(phase); };
  const auto numbers = [&](Slot slot, const char* column, const std::string& text, const char* flag, bool always, std::int64_t otherwise) {
    Axis& axis = add_axis(slot, column, text, always, Unit::kCount);
    axis.numbers = text.empty() ? NumberList(otherwise) : NumberList::parse(text, flag);
  };
  const auto words = [&](Slot slot, const char* column, const std::string& text, bool always, auto parse, std::int64_t otherwise, const char* name) {
    Axis& axis = add_axis(slot, column, text, always, Unit::kText);
    if (text.empty()) axis.words = {otherwise}, axis.texts = {name};
    else read_words(text, parse, axis.words, axis.texts);
  };
  words(Slot::kDtype, "dtype", flags.dtype, true, parse_dtype, static_cast<std::int64_t>(gpu_ ? DType::kBF16 : DType::kF32), gpu_ ? "bf16" : "f32");
  words(Slot::kKvDtype, "kv_dtype", flags.kv_dtype, false, parse_dtype, -1, "");
  words(Slot::kGradDtype, "grad_dtype", flags.grad_dtype, false, parse_dtype, -1, "");
  words(Slot::kLogits, "logits", flags.logits, false, parse_logits, -1, "");
  words(Slot::kRouting, "routing", flags.routing, false, parse_routing, -1, "");
  for (const Network& network : models_)
    for (const std::int64_t cache : axes_[1].words)
      for (const std::int64_t compute : axes_[0].words)
        if (has(Phase::kPrefill) && axes_[1].given)
          for (const std::string& text : note_cache_type(network, Phase::kPrefill, static_cast<DType>(compute), static_cast<DType>(cache), !flags.past.empty()))
            if (std::find(notes_.begin(), notes_.end(), text) == notes_.end()) notes_.push_back(text);
  // A policy by op names joins them with '+': commas separate the values of the axis.
  words(Slot::kRecompute, "recompute", flags.recompute, false, [](const std::string& text) { Scenario policy; parse_recompute(text, policy); return 0; }, 0, "none");
  words(Slot::kWeightDtype, "weight_dtype", flags.weight_dtype, false, parse_weight_dtype, -1, "");
  if (!flags.weight_dtype.empty() && has(Phase::kTrain)) {
    const char* const text = "training keeps its weights in the compute type; other weights are for prefill, decode and generate";
    if (phases.size() == 1) throw_input(text, {"", 0, "--weight-dtype"}, "leave it out, or choose the type with --dtype");
    notes_.push_back(std::string("--weight-dtype: ") + text + ": rows of training have none");
  }
  words(Slot::kMla, "mla", flags.mla, false, parse_mla, 0, "");
  {
    Axis& axis = add_axis(Slot::kFusion, "fusion", flags.fusion, false, Unit::kText);
    axis.texts = axis.given ? fusion_policies(flags.fusion) : std::vector<std::string>{""};
    for (const std::string& text : axis.texts) {
      if (axis.given) parse_fusions(text);
      axis.words.push_back(0);
    }
  }
  words(Slot::kConvention, "convention", conventions, false, [](const std::string& text) { find_convention(text); return 0; }, 0, "");
  if (!flags.counts)
    for (Network& network : models_) network.weight_dtype.reset();  // run, and predicted, in the compute type
  {
    Axis& axis = add_axis(Slot::kParticipation, "participation", flags.participation, false, Unit::kRatio);
    if (axis.given) axis.fractions = FractionList::parse(flags.participation, "--participation");
    else axis.words = {0}, axis.texts = {""};
    if (axis.given && axis.fractions->has_none()) throw Error(ErrorKind::kUsage, "--participation: 'none' is no share");
  }
  numbers(Slot::kKvPage, "kv_page", flags.kv_page, "--kv-page", false, 1);
  numbers(Slot::kMicro, "grad_accumulation", flags.grad_accumulation, "--grad-accumulation", false, 1);
  numbers(Slot::kLength, "seq", flags.seq, "--seq", true, kDefault);
  if (has(Phase::kGenerate)) numbers(Slot::kLength, "prompt", flags.prompt.empty() ? flags.seq : flags.prompt, "--prompt", true, kDefault);
  numbers(Slot::kPast, "past", flags.past, "--past", false, 0);
  numbers(Slot::kContext, "context", flags.context, "--context", has(Phase::kDecode), kDefault);
  numbers(Slot::kTokens, "tokens", flags.tokens, "--tokens", has(Phase::kGenerate), 64);
  numbers(Slot::kBatch, "batch", flags.batch, "--batch", true, 1);
  for (PhasePart& part : phases_) {
    for (const Axis& axis : axes_) {
      const bool used = applies(axis, part.phase);
      part.used.push_back(used);
      if (!used) continue;
      if (axis.size() > (std::uint64_t{1} << 60) / part.rows) throw_input("the sweep has more than 1e18 configurations");
      part.rows *= axis.size();
    }
  }
}

bool SweepSpace::has_phase(Phase phase) const {
  return std::any_of(phases_.begin(), phases_.end(), [&](const PhasePart& part) { return part.phase == phase; });
}

bool SweepSpace::routed() const {
  return twin_ || std::any_of(models_.begin(), models_.end(), [](const Network& network) { return network.has_routes(); });
}

// Values that a phase does not look at are no rows of it.
bool SweepSpace::applies(const Axis& axis, Phase phase) const {
  const bool train = phase == Phase::kTrain, decode = phase == Phase::kDecode, generate = phase == Phase::kGenerate;
  switch (axis.slot) {
    case Slot::kGradDtype:
    case Slot::kRecompute:
    case Slot::kMicro: return train;
    case Slot::kLogits: return !train && !generate;  // a generation takes those of the last token alone
    case Slot::kKvDtype:
    case Slot::kWeightDtype:
    case Slot::kKvPage: return !train;
    case Slot::kPast: return phase == Phase::kPrefill;
    case Slot::kContext: return decode;
    case Slot::kTokens: return generate;
    case Slot::kLength: {
      if (columns_[static_cast<std::size_t>(axis.column)].key == "prompt") return generate;
      if (generate) return false;
      // With a context of its own a decode step has no other length.
      return !decode || std::none_of(axes_.begin(), axes_.end(), [](const Axis& other) { return other.slot == Slot::kContext && other.given; });
    }
    default: return true;
  }
}

void SweepSpace::set_value(const Axis& axis, std::uint64_t at, SweepPoint& point) const {
  Scenario& s = point.scenario;
  const std::int64_t value = axis.numbers ? axis.numbers->at(at) : axis.fractions ? 0 : axis.words[static_cast<std::size_t>(at)];
  switch (axis.slot) {
    case Slot::kDtype: s.dtype = s.kv_dtype = s.grad_dtype = static_cast<DType>(value); break;
    case Slot::kKvDtype:
      if (value >= 0) s.kv_dtype = static_cast<DType>(value);
      break;
    case Slot::kGradDtype:
      if (value >= 0) s.grad_dtype = static_cast<DType>(value);
      break;
    case Slot::kLogits:
      if (value >= 0) s.logits = static_cast<LogitsKind>(value);
      break;
    case Slot::kRouting:
      if (value >= 0) s.routing = static_cast<RoutingRule>(value);
      break;
    case Slot::kParticipation:
      if (axis.fractions) s.participation = axis.fractions->at(at);
      break;
    case Slot::kRecompute:
      if (axis.given) parse_recompute(axis.texts[static_cast<std::size_t>(at)], s);
      break;
    case Slot::kMla: s.mla = static_cast<MlaStrategy>(value); break;
    case Slot::kFusion:
      if (axis.given) s.fusions = parse_fusions(axis.texts[static_cast<std::size_t>(at)]);
      break;
    case Slot::kWeightDtype:
      if (value >= 0) s.weight_dtype = static_cast<DType>(value);
      break;
    case Slot::kConvention:
      if (axis.given) point.convention = axis.texts[static_cast<std::size_t>(at)];
      break;
    case Slot::kKvPage: s.kv_page = value; break;
    case Slot::kMicro: s.grad_accumulation = value; break;
    case Slot::kLength: s.length = value; break;
    case Slot::kPast: s.past = value; break;
    case Slot::kContext: s.context = value; break;
    case Slot::kTokens: s.tokens = value; break;
    case Slot::kBatch: s.batch = value; break;
  }
}

std::int64_t SweepSpace::default_length(const Network& network) const {
  return network.max_length > 0 ? std::min<std::int64_t>(2048, network.max_length) : 2048;
}

void SweepSpace::at(std::uint64_t row, SweepPoint& point) const {
  point.row = row;
  point.keys.resize(columns_.size());
  if (!machines_.empty()) {
    const std::uint64_t each = rows_ / machines_.size();
    point.machine = static_cast<std::size_t>(row / each);
    point.keys[static_cast<std::size_t>(machine_column_)] = machines_[point.machine];
    row %= each;
  }
  const std::uint64_t network = row / rows_per_network_;
  std::uint64_t rest = row % rows_per_network_;
  if (point.network_index != network) set_network(network, point);
  point.line = SweepPoint::kNoLine;
  if (line_size_ > 0) {
    point.line = network / line_inner_ / line_size_;
    point.line_at = static_cast<std::int64_t>(network / line_inner_ % line_size_);
    point.line_variant = static_cast<std::size_t>(network % line_inner_ * rows_per_network_ + rest);
  }
  point.family = families_ ? family_of(network) : SweepPoint::kNoLine;
  const PhasePart* part = phases_.data();
  while (rest >= part->rows) rest -= part->rows, ++part;
  point.keys[static_cast<std::size_t>(phase_column_)] = phase_name(part->phase);
  point.scenario = base_;
  point.convention = {};
  point.scenario.phase = part->phase;
  point.scenario.logits = part->phase == Phase::kTrain ? LogitsKind::kAll : LogitsKind::kLast;
  point.scenario.length = point.scenario.context = kDefault;
  // Innermost axis first for the digits; the values are set outermost first, since some (dtype) are defaults of others (kv_dtype).
  std::uint64_t digits[24] = {};
  std::size_t variant = 0;
  for (std::size_t i = axes_.size(); i-- > 0;) {
    const std::uint64_t size = axes_[i].size();
    if (!part->used[i] || size == 1) continue;
    digits[i] = rest % size;
    rest /= size;
    if (axes_[i].slot != Slot::kParticipation) variant = static_cast<std::size_t>(variant * size + digits[i]);
  }
  point.family_variant = variant * phases_.size() + static_cast<std::size_t>(part - phases_.data());
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    const Axis& axis = axes_[i];
    if (part->used[i]) set_value(axis, digits[i], point);
    if (axis.column < 0) continue;
    std::string& text = point.keys[static_cast<std::size_t>(axis.column)];
    if (part->used[i]) axis.text(digits[i], text);
    else text.clear();
  }
  // Lengths that follow from the model or from one another.
  Scenario& s = point.scenario;
  const bool decode = s.phase == Phase::kDecode;
  const bool no_length = s.length == kDefault, no_context = s.context == kDefault;
  if (no_length) s.length = decode && !no_context ? s.context : point.network ? default_length(*point.network) : 2048;
  if (no_context) s.context = decode ? s.length : 0;
  if (!no_length && !(decode && no_context)) return;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].column < 0 || !part->used[i]) continue;
    std::string& text = point.keys[static_cast<std::size_t>(axes_[i].column)];
    if (axes_[i].slot == Slot::kLength && no_length) text = std::to_string(s.length);
    if (axes_[i].slot == Slot::kContext && no_context) text = std::to_string(s.context);
  }
}

}  // namespace fathom
