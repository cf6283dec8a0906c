// From flags to configurations: ranges, defaults, MoD twins.
#include <CLI/CLI.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "lib/error.hpp"
#include "models/builder.hpp"
#include "models/registry.hpp"
#include "tools/cli.hpp"
#include "tools/defaults.hpp"
#include "tools/idle_flags.hpp"
#include "tools/ranges.hpp"

namespace fathom {
namespace {

constexpr std::size_t kMostValues = 1'000'000;

// Options of words are lists in a sweep alone.
const std::string& one_word(const std::string& text, const char* flag) {
  if (text.find(',') != std::string::npos || text.find(':') != std::string::npos)
    throw_input(fmt::format("'{}' is a list, and one is taken here", text.substr(0, 60)), {"", 0, flag}, "fathom sweep takes lists: a row for each");
  return text;
}

// Uneven expert loads, in every layer that has experts.
void set_loads(Network& network, const ModelFlags& flags) {
  if (flags.expert_skew && !flags.expert_loads.empty()) throw Error(ErrorKind::kUsage, "--expert-skew and --expert-loads exclude each other");
  std::vector<double> loads;
  if (!flags.expert_loads.empty()) {
    for (const std::string& word : split(flags.expert_loads, ',')) {
      double load = 0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), load);
      if (error != std::errc() || end != word.data() + word.size())
        throw Error(ErrorKind::kUsage, fmt::format("--expert-loads: '{}' is not a number", word.substr(0, 60)), {}, "write one relative load per expert: 4,2,1,1");
      loads.push_back(load);
    }
  }
  bool any = false;
  for (BlockConfig& kind : network.kinds) {
    if (!kind.mlp || !kind.mlp->moe) continue;
    any = true;
    kind.mlp->moe->skew = flags.expert_skew.value_or(0);
    kind.mlp->moe->loads = loads;
  }
  if (!any) throw_input(fmt::format("{} has no experts", network.name), {"", 0, flags.expert_skew ? "--expert-skew" : "--expert-loads"});
}

// Without a limit per expert, uneven loads change how many experts are read, and a step of many tokens reads all of them however they are loaded.
std::vector<std::string> idle_loads(const Configuration& c, const ModelFlags& flags) {
  const bool asked = flags.expert_skew.value_or(0) != 0 || !flags.expert_loads.empty();
  if (!asked || c.scenario.phase == Phase::kGenerate) return {};
  Network even = c.network;
  for (BlockConfig& kind : even.kinds)
    if (kind.mlp && kind.mlp->moe) kind.mlp->moe->skew = 0, kind.mlp->moe->loads.clear();
  const ListTotals with = count_totals(c.network, c.scenario, true), without = count_totals(even, c.scenario, true);
  constexpr double kShown = 1e-6;  // of a figure: what no table shows
  const auto same = [](double a, double b) { return std::abs(a - b) <= kShown * std::max(a, b); };
  if (!(with.total == without.total) || !same(with.expected.flops, without.expected.flops) || !same(with.expected.read, without.expected.read) || !same(with.expected.rows, without.expected.rows)) return {};
  return {fmt::format("{} changes nothing in {} at {} tokens: without an expert capacity loads decide which experts are read, and so many tokens read all of them", flags.expert_skew ? "--expert-skew" : "--expert-loads",
                      c.network.name, c.scenario.batch * (c.scenario.phase == Phase::kDecode ? 1 : c.scenario.length))};
}

// The model as written, with the twin flags applied.
Network resolve(const std::string& model, const ModelFlags& flags) {
  HfOptions options;
  options.strict = flags.strict;
  options.mtp = flags.mtp.value_or(0) > 0;  // else the import says that they are left out
  Network network = load_network(model, options);
  if (flags.mtp) network.mtp = *flags.mtp;
  if (flags.expert_skew || !flags.expert_loads.empty()) set_loads(network, flags);
  if (flags.mtp || flags.expert_skew || !flags.expert_loads.empty()) validate(network);
  const bool twin = flags.mod_every || !flags.capacity.empty() || flags.slots;
  if (!twin) {
    if (!flags.rounding.empty() || !flags.gate.empty())
      throw_input("--rounding and --gate describe a MoD twin", {"", 0, ""}, "add --mod-every M and --capacity F");
    return network;
  }
  if (!flags.capacity.empty() && flags.slots) throw Error(ErrorKind::kUsage, "--capacity and --slots exclude each other");
  Route route;
  if (flags.slots)
    route.slots = *flags.slots;
  else
    route.capacity = flags.capacity.empty() ? Fraction{1, 8} : parse_fraction_flag(flags.capacity, "--capacity");
  if (!flags.rounding.empty()) route.rounding = parse_rounding(flags.rounding);
  route.gate = parse_gate(flags.gate);
  Network routed;
  try {
    routed = with_routes(network, flags.mod_every.value_or(2), route);
  } catch (const Error& error) {  // it asks of every M-th layer; what was typed may be another flag
    if (error.where().key != "mod-every") throw;
    throw Error(error.kind(), error.message(), {"", 0, flags.mod_every ? "--mod-every" : flags.slots ? "--slots" : "--capacity"}, error.hint());
  }
  routed.name = fmt::format("{}+mod({}@{})", network.name, flags.mod_every.value_or(2),
                            route.slots ? fmt::format("{} slots", *route.slots) : route.capacity->str());
  return routed;
}

}  // namespace

std::function<std::string(const std::string&)> number_in(double low, double high) {
  return [low, high](const std::string& text) -> std::string {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (!text.empty() && *end == '\0' && value >= low && value <= high) return {};
    return fmt::format("'{}' is not a number from {} to {}", text.substr(0, 80), low, high);
  };
}

std::function<std::string(const std::string&)> known_names(const char* flag, std::function<void(const std::string&)> parse, char separator) {
  return [flag, parse = std::move(parse), separator](const std::string& text) {
    try {
      if (separator == '\0') parse(text);
      else
        for (const std::string& word : split(text, separator)) parse(word);
    } catch (const Error& error) {
      throw Error(error.kind(), error.message(), {error.where().file, error.where().line, flag}, error.hint());
    }
    return std::string();
  };
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts(1);
  for (char c : text) {
    if (c == at)
      parts.emplace_back();
    else
      parts.back().push_back(c);
  }
  return parts;
}

Fraction parse_fraction_flag(const std::string& text, std::string_view flag) {
  try {
    return parse_fraction(text);
  } catch (const Error& error) {
    // What reads as a number (nan, -0.1, 1/0, 1e-400) is a wrong value; anything else is not understood.
    std::string lower = text;
    std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const std::string body = lower.substr(lower.find_first_not_of("+-") == std::string::npos ? 0 : lower.find_first_not_of("+-"));
    const bool number = body == "nan" || body == "inf" || body == "infinity" || (!body.empty() && std::isdigit(static_cast<unsigned char>(body[0])) && body.find_first_not_of("0123456789.e+-/%") == std::string::npos);
    throw Error(number ? ErrorKind::kInput : ErrorKind::kUsage, fmt::format("{}: {}", flag, error.message()), {}, error.hint());
  }
}

DType parse_weight_dtype(const std::string& text) {
  const DType type = parse_dtype(text);
  if (type == DType::kI32 || type == DType::kF64) throw_input(fmt::format("weights are stored in f32, bf16, f16, f8 or i8, not {}", text), {"", 0, "--weight-dtype"});
  return type;
}

Gate parse_gate(const std::string& text) {
  if (text.empty() || text == "raw") return Gate{GateKind::kRaw, 1.0, 0.0};
  if (text == "sigmoid") return Gate{GateKind::kSigmoid, 1.0, 0.0};
  if (text == "none") return Gate{GateKind::kNone, 1.0, 0.0};
  throw_input(fmt::format("unknown gate '{}'", text), {"", 0, "gate"}, name_hint(text, {"raw", "sigmoid", "none"}));
}

std::vector<std::int64_t> parse_range(const std::string& text, std::string_view flag) {
  const NumberList list = NumberList::parse(text, flag);
  if (list.size() > kMostValues) throw_input(fmt::format("{} has more than a million values", text.substr(0, 80)), {"", 0, std::string(flag)}, "fathom sweep takes any number of them");
  std::vector<std::int64_t> values;
  for (std::uint64_t i = 0; i < list.size(); ++i) values.push_back(list.at(i));
  return values;
}

std::vector<std::string> phases_of(const ScenarioFlags& flags) {
  std::vector<std::string> phases;
  for (const std::string& item : flags.phases)
    for (const std::string& word : split(item, ',')) phases.push_back(word);
  if (phases.empty()) phases.push_back("prefill");
  return phases;
}

void add_model_flags(CLI::App& app, ModelFlags& flags) {
  app.add_option("MODEL", flags.models, "built-in name, INI file or Hugging Face config.json")->required();
  app.add_option("--mod-every", flags.mod_every, "turn a dense model into its MoD twin: route layer l where l mod M = M-1 [2]")->type_name("M")->group("MoD twin");
  app.add_option("--capacity", flags.capacity, "share of the tokens a routed block takes, such as 0.125 or 1/8 [1/8]")->type_name("F")->group("MoD twin");
  app.add_option("--slots", flags.slots, "absolute slots per sequence instead of a share")->type_name("N")->group("MoD twin");
  app.add_option("--rounding", flags.rounding, "of capacity x tokens: floor, half-up, ceil [floor]")->type_name("MODE")->group("MoD twin");
  app.add_option("--gate", flags.gate, "raw, sigmoid or none [raw]")->type_name("G")->group("MoD twin");
  app.add_option("--mtp", flags.mtp, "multi-token prediction modules that are counted [the model's; config.json: 0]")->type_name("N")->group("More");
  app.add_option("--expert-skew", flags.expert_skew, "uneven expert loads in expectation: share of the expert of rank r ~ r^-S [the model's]")->type_name("S")->group("More");
  app.add_option("--expert-loads", flags.expert_loads, "the same by numbers: relative load of every expert, such as 4,2,1,1 [the model's]")->type_name("LIST")->group("More");
  app.add_flag("--strict", flags.strict, "config.json: an unknown key is an error")->group("More");
}

void add_scenario_flags(CLI::App& app, ScenarioFlags& flags) {
  const auto group = "Scenario (lists: 1,2,4; ranges: 64:512:64, 1:128:x2)";
  app.add_option("--phase", flags.phases, "train, prefill, decode or generate; repeatable, or a list [prefill]")->allow_extra_args(false)->check(known_names("--phase", parse_phase, ','))->type_name("P")->group(group);
  app.add_option("--batch", flags.batch, "sequences [1]")->type_name("B")->group(group);
  app.add_option("--seq", flags.seq, "tokens per sequence [2048, or the model's maximum]")->type_name("S")->group(group);
  app.add_option("--context", flags.context, "decode: keys the new token sees, itself included [seq]")->type_name("N")->group(group);
  app.add_option("--past", flags.past, "prefill: tokens that are cached already [0]")->type_name("T")->group(group);
  app.add_option("--prompt", flags.prompt, "generate: prompt tokens [seq]")->type_name("P")->group(group);
  app.add_option("--tokens", flags.tokens, "generate: output tokens [64]")->type_name("G")->group(group);
  app.add_option("--dtype", flags.dtype, "f32, bf16, f16, f64, f8 or i8; kernels run f32 and bf16 [f32 on CPU, bf16 on GPU]")->check(known_names("--dtype", parse_dtype, ','))->type_name("T")->group(group);
  app.add_option("--logits", flags.logits, "all, last or none [train: all; else last]")->check(known_names("--logits", parse_logits, ','))->type_name("L")->group(group);
  app.add_option("--routing", flags.routing, "topk, threshold, predictor or random [by phase]")->check(known_names("--routing", parse_routing, ','))->type_name("R")->group(group);
  app.add_option("--participation", flags.participation, "threshold routing: share of tokens that take a routed block [capacity]")->type_name("F")->group(group);
  app.add_option("--recompute", flags.recompute, "train: none, selective, full, or op names: attn/core+mlp/act [none]")->type_name("R")->group(group);
  app.add_option("--mla", flags.mla, "latent attention: naive, absorbed or decompress [naive]")->check(known_names("--mla", parse_mla, ','))->type_name("M")->group("More");
  app.add_option("--kv-dtype", flags.kv_dtype, "type of the KV cache [dtype]")->check(known_names("--kv-dtype", parse_dtype, ','))->type_name("T")->group("More");
  app.add_option("--grad-dtype", flags.grad_dtype, "type of gradients [dtype]")->check(known_names("--grad-dtype", parse_dtype, ','))->type_name("T")->group("More");
  app.add_option("--kv-page", flags.kv_page, "cache rows per page [1]")->type_name("N")->group("More");
  app.add_option("--grad-accumulation", flags.grad_accumulation, "micro-steps per optimizer step; its loss is the mean of theirs, so N of batch b take the step of batch N b [1]")->type_name("N")->group("More");
  app.add_flag("--full-mask", flags.full_mask, "count the whole attention square")->group("More");
  app.add_flag("--no-optimizer", flags.no_optimizer, "train: leave the optimizer out")->group("More");
}

void add_counted_flags(CLI::App& app, ScenarioFlags& flags) {
  flags.counts = true;
  app.add_option("--weight-dtype", flags.weight_dtype, "stored type of the matrices inside the layers: f8, i8, bf16 ... [the model's, else dtype]")->type_name("T")->group("More");
  app.add_option("--fusion", flags.fusion, "what passes no intermediate tensor through memory: all, none, or of qkv,attention,gate-up,norm,residual [qkv,attention]")
      ->type_name("LIST")
      ->group("More");
}

std::vector<Configuration> expand(const ModelFlags& model_flags, const ScenarioFlags& flags, bool gpu, std::vector<RecordNote>& notes) {
  std::vector<Configuration> result;
  const std::vector<std::string> phases = phases_of(flags);
  const auto say = [&](const std::vector<std::string>& texts, Note::Severity severity = Note::Severity::kNote) {
    for (const std::string& text : texts)
      if (!about_default(text) && std::none_of(notes.begin(), notes.end(), [&](const RecordNote& known) { return known.text == text; })) notes.push_back({severity, text});
  };
  say(idle_in_phases(flags, phases));
  say(idle_strict(model_flags.strict, model_flags.models));
  say(idle_twin(model_flags.slots.has_value(), !model_flags.rounding.empty()));
  for (const std::string& model : model_flags.models) {
    const Network network = resolve(model, model_flags);
    say(idle_in_network(flags, phases, network, network.has_routes()));
    for (const std::string& note : network.notes) say({network.name + ": " + note});
    for (const std::string& phase_text : phases) {
      Scenario base;
      base.phase = parse_phase(phase_text);
      base.dtype = flags.dtype.empty() ? (gpu ? DType::kBF16 : DType::kF32) : parse_dtype(one_word(flags.dtype, "--dtype"));
      base.kv_dtype = flags.kv_dtype.empty() || base.phase == Phase::kTrain ? base.dtype : parse_dtype(one_word(flags.kv_dtype, "--kv-dtype"));  // training keeps no cache
      say(note_cache_type(network, base.phase, base.dtype, base.kv_dtype, !flags.past.empty()));
      base.grad_dtype = flags.grad_dtype.empty() ? base.dtype : parse_dtype(one_word(flags.grad_dtype, "--grad-dtype"));
      base.logits = base.phase == Phase::kTrain ? LogitsKind::kAll : LogitsKind::kLast;
      if (!flags.logits.empty()) base.logits = parse_logits(one_word(flags.logits, "--logits"));
      if (!flags.routing.empty()) base.routing = parse_routing(one_word(flags.routing, "--routing"));
      if (!flags.participation.empty()) base.participation = parse_fraction_flag(one_word(flags.participation, "--participation"), "--participation");
      if (!flags.mla.empty()) base.mla = parse_mla(one_word(flags.mla, "--mla"));
      if (base.phase == Phase::kTrain && base.mla == MlaStrategy::kDecompress) base.mla = MlaStrategy::kNaive;  // the same list; idle_in_phases() says so
      if (!flags.recompute.empty()) parse_recompute(flags.recompute, base);
      if (base.recompute == Recompute::kNamed && std::find(phases.begin(), phases.end(), "train") == phases.end())
        throw_input("names of ops to recompute are those of a training step", {"", 0, "--recompute"}, "add --phase train, or write none, selective or full");
      if (!flags.weight_dtype.empty()) base.weight_dtype = parse_weight_dtype(one_word(flags.weight_dtype, "--weight-dtype"));
      if (!flags.fusion.empty()) base.fusions = parse_fusions(flags.fusion);
      if (!flags.counts && network.weight_dtype && base.phase != Phase::kTrain) {
        base.weight_dtype = base.dtype;
        say({fmt::format("{}: weights are taken in {}; fathom count counts them as stored", network.name, dtype_name(base.dtype))});
      }
      base.full_mask = flags.full_mask;
      base.optimizer = !flags.no_optimizer;
      const std::int64_t default_length = network.max_length > 0 ? std::min<std::int64_t>(2048, network.max_length) : 2048;
      const auto values = [](const std::string& text, std::int64_t otherwise, std::string_view flag) {
        return text.empty() ? std::vector<std::int64_t>{otherwise} : parse_range(text, flag);
      };
      const bool generate = base.phase == Phase::kGenerate;
      const std::string& length_text = generate && !flags.prompt.empty() ? flags.prompt : flags.seq;
      for (std::int64_t length : values(length_text, default_length, generate ? "--prompt" : "--seq"))
        for (std::int64_t past : values(flags.past, 0, "--past"))
          for (std::int64_t context : values(base.phase == Phase::kDecode ? flags.context : "", length, "--context"))
            for (std::int64_t tokens : values(generate ? flags.tokens : "", 64, "--tokens"))
              for (std::int64_t page : values(flags.kv_page, 1, "--kv-page"))
                for (std::int64_t micro : values(base.phase == Phase::kTrain ? flags.grad_accumulation : "", 1, "--grad-accumulation"))
                  for (std::int64_t batch : values(flags.batch, 1, "--batch")) {
                    Configuration configuration{network, base, network.name};
                    Scenario& s = configuration.scenario;
                    s.length = length;
                    s.past = base.phase == Phase::kPrefill ? past : 0;
                    s.context = base.phase == Phase::kDecode ? context : 0;
                    s.tokens = generate ? tokens : 0;
                    s.batch = batch;
                    s.kv_page = page;
                    s.grad_accumulation = micro;
                    validate(s);
                    const std::int64_t reach = s.phase == Phase::kDecode ? s.context : s.past + s.length + (generate ? s.tokens - 1 : 0);
                    if (network.max_length > 0 && reach > network.max_length)
                      say({fmt::format("{}: {} positions exceed the {} {}; counted all the same", network.name, reach, network.max_length,
                                       network.positions == PositionKind::kLearned ? "rows of the position table" : "the model was made for")},
                          Note::Severity::kWarning);
                    say(idle_loads(configuration, model_flags));
                    result.push_back(std::move(configuration));
                    if (result.size() > kMostValues) throw_input("more than a million configurations");
                  }
    }
  }
  return result;
}

}  // namespace fathom
