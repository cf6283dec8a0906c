#include "lib/machine.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <mutex>

#include "lib/gpu/gpu_model.hpp"

namespace fathom {
namespace {

constexpr std::string_view kProvenanceNames[] = {"datasheet", "probed", "fitted", "extrapolated"};

// Unambiguous text of everything that can change a prediction. Sources and dates are left out of no figure: another source is another file.
class HashText {
 public:
  void text(std::string_view value) { fmt::format_to(std::back_inserter(out_), "{}:{};", value.size(), value); }
  void number(double value) { fmt::format_to(std::back_inserter(out_), "{:a};", value); }
  void integer(std::int64_t value) { fmt::format_to(std::back_inserter(out_), "{};", value); }
  void figure(const Figure& f) {
    number(f.value);
    integer(static_cast<int>(f.provenance));
    text(f.source);
  }
  void figure(const std::optional<Figure>& f) {
    integer(f.has_value());
    if (f) figure(*f);
  }
  void figures(const PerThreads& figures) {
    integer(static_cast<std::int64_t>(figures.size()));
    for (const auto& [threads, f] : figures) {
      integer(threads);
      figure(f);
    }
  }
  void numbers(const std::map<std::string, double>& values) {
    integer(static_cast<std::int64_t>(values.size()));
    for (const auto& [name, value] : values) {
      text(name);
      number(value);
    }
  }
  std::string hash() const { return fmt::format("{:016x}", XXH3_64bits(out_.data(), out_.size())); }

 private:
  std::string out_;
};

void check_figures(const std::string& what, const PerThreads& figures) {
  for (const auto& [threads, f] : figures)
    if (!(f.value > 0) || !std::isfinite(f.value)) throw_input(fmt::format("{} ({} threads) is {}, not a positive number", what, threads, f.value));
}

}  // namespace

struct GpuFit::State {
  std::string hash;
  std::function<gpu::GpuModel()> load;
  std::once_flag once;
  std::optional<gpu::GpuModel> model;
};

GpuFit::GpuFit(std::string hash, std::function<gpu::GpuModel()> load) : state_(std::make_shared<State>()) {
  state_->hash = std::move(hash);
  state_->load = std::move(load);
}

const std::string& GpuFit::hash() const {
  if (!state_) throw_internal("a machine without a fitted model was asked for it");
  return state_->hash;
}

const gpu::GpuModel& GpuFit::model() const {
  static_cast<void>(hash());
  std::call_once(state_->once, [this] { state_->model = state_->load(); });
  return *state_->model;
}

std::string_view provenance_name(Provenance provenance) { return kProvenanceNames[static_cast<int>(provenance)]; }

Provenance parse_provenance(std::string_view text) {
  for (int i = 0; i < 4; ++i)
    if (text == kProvenanceNames[i]) return static_cast<Provenance>(i);
  throw_input(fmt::format("unknown provenance '{}'", text.substr(0, 60)), {}, name_hint(text, {"datasheet", "probed", "fitted", "extrapolated"}));
}

Provenance weaker(Provenance a, Provenance b) {
  // From strong to weak: probed here, fitted on this kind of machine, read in a data sheet, extrapolated.
  const auto rank = [](Provenance p) { return p == Provenance::kProbed ? 0 : p == Provenance::kFitted ? 1 : p == Provenance::kDatasheet ? 2 : 3; };
  return rank(a) >= rank(b) ? a : b;
}

std::string_view access_name(Access access) {
  constexpr std::string_view names[] = {"read", "copy", "update", "gather"};
  return names[static_cast<int>(access)];
}

int Machine::default_threads() const {
  int most = 0;
  for (const Peak& peak : peaks)
    if (!peak.rate.empty()) most = std::max(most, peak.rate.rbegin()->first);
  return kind == MachineKind::kGpu ? 0 : most;
}

const Peak* Machine::peak(DType dtype) const {
  const auto found = std::find_if(peaks.begin(), peaks.end(), [dtype](const Peak& p) { return p.dtype == dtype; });
  return found == peaks.end() ? nullptr : &*found;
}

const MemoryLevel* Machine::level(std::string_view wanted) const {
  const auto found = std::find_if(levels.begin(), levels.end(), [wanted](const MemoryLevel& l) { return l.name == wanted; });
  return found == levels.end() ? nullptr : &*found;
}

std::string Machine::hash() const {
  HashText out;
  for (const std::string* s : {&name, &board, &isa, &date}) out.text(*s);
  out.integer(static_cast<int>(kind));
  out.integer(cores);
  for (const auto& [key, value] : software) {
    out.text(key);
    out.text(value);
  }
  for (const auto* f : {&clock, &clock_max, &memory, &exp_element, &select_element, &clock_read}) out.figure(*f);
  for (const Peak& p : peaks) {
    out.integer(static_cast<int>(p.dtype));
    out.text(p.unit);
    out.figures(p.rate);
    out.figures(p.best);
  }
  for (const MemoryLevel& l : levels) {
    out.text(l.name);
    out.integer(l.shared);
    out.figure(l.capacity);
    out.figure(l.claimed);
    for (const PerThreads& r : l.rate) out.figures(r);
  }
  out.figures(launch);
  out.figures(region);
  out.numbers(noise);
  if (!references.empty()) out.numbers(references);
  for (const GemmCurve& c : gemm_curves) {
    out.text(c.variant);
    for (const std::int64_t v : {static_cast<std::int64_t>(c.dtype), static_cast<std::int64_t>(c.threads), c.n, c.k, static_cast<std::int64_t>(c.provenance)}) out.integer(v);
    for (size_t i = 0; i < c.rows.size(); ++i) {
      out.integer(c.rows[i]);
      out.number(c.seconds.at(i));
    }
  }
  for (const ClassFit& f : class_fits) {
    out.text(f.name);
    out.integer(static_cast<int>(f.dtype));
    out.integer(f.threads);
    out.numbers(f.coefficients);
    out.numbers(f.low);
    out.numbers(f.high);
    out.number(f.residual_low);
    out.number(f.residual_high);
    out.integer(f.points);
  }
  if (gpu_fit) out.text(gpu_fit.hash());
  return out.hash();
}

std::optional<Figure> figure_at(const PerThreads& figures, int threads) {
  if (figures.empty()) return std::nullopt;
  const auto exact = figures.find(threads);
  if (exact != figures.end()) return exact->second;
  const auto above = figures.upper_bound(threads);
  Figure result;
  if (above == figures.end() || above == figures.begin()) {  // beyond what was probed: the nearest figure, marked
    result = above == figures.end() ? figures.rbegin()->second : above->second;
    result.provenance = Provenance::kExtrapolated;
    result.source = fmt::format("nearest probed thread count: {}", above == figures.end() ? figures.rbegin()->first : above->first);
    return result;
  }
  const auto below = std::prev(above);
  const double share = static_cast<double>(threads - below->first) / static_cast<double>(above->first - below->first);
  result.value = below->second.value + share * (above->second.value - below->second.value);
  result.provenance = weaker(below->second.provenance, above->second.provenance);
  result.source = fmt::format("between {} and {} threads", below->first, above->first);
  return result;
}

std::vector<std::string> falling_rates(const Machine& m) {
  constexpr double kSlack = 0.9;
  std::vector<std::string> found;
  const auto look = [&](const std::string& what, const PerThreads& rates, const char* unit) {
    for (auto at = rates.begin(); at != rates.end() && std::next(at) != rates.end(); ++at) {
      const auto more = std::next(at);
      if (more->second.value < kSlack * at->second.value)
        found.push_back(fmt::format("{}: {:.3g} G{} at {} thread{}, {:.3g} at {}", what, at->second.value * 1e-9, unit, at->first, at->first == 1 ? "" : "s", more->second.value * 1e-9, more->first));
    }
  };
  for (const Peak& p : m.peaks) look(fmt::format("{} peak", dtype_name(p.dtype)), p.rate, "FLOP/s");
  for (const MemoryLevel& l : m.levels)
    for (int a = 0; a < kAccesses; ++a) look(fmt::format("{} {}", l.name, access_name(static_cast<Access>(a))), l.rate[a], "B/s");
  return found;
}

void take_faster(Machine& machine, const Machine& again) {
  const auto raise = [](PerThreads& rates, const PerThreads& others) {
    for (const auto& [threads, other] : others) {
      const auto here = rates.find(threads);
      if (here == rates.end() || here->second.value < other.value) rates[threads] = other;
    }
  };
  const auto lower = [](PerThreads& costs, const PerThreads& others) {
    for (const auto& [threads, other] : others) {
      const auto here = costs.find(threads);
      if (here == costs.end() || here->second.value > other.value) costs[threads] = other;
    }
  };
  for (const Peak& other : again.peaks)
    for (Peak& p : machine.peaks)
      if (p.dtype == other.dtype) {
        raise(p.rate, other.rate);
        raise(p.best, other.best);
      }
  for (const MemoryLevel& other : again.levels)
    for (MemoryLevel& l : machine.levels)
      if (l.name == other.name)
        for (int a = 0; a < kAccesses; ++a) raise(l.rate[a], other.rate[a]);
  lower(machine.launch, again.launch);
  lower(machine.region, again.region);
  if (machine.clock && again.clock && again.clock->value > machine.clock->value) machine.clock = again.clock;
  if (machine.clock_max && again.clock_max && again.clock_max->value > machine.clock_max->value) machine.clock_max = again.clock_max;
}

void raise_falling_rates(Machine& m) {
  const auto raise = [](PerThreads& rates) {
    for (auto at = rates.begin(); at != rates.end() && std::next(at) != rates.end(); ++at) {
      Figure& more = std::next(at)->second;
      if (more.value >= at->second.value) continue;
      more.source = fmt::format("as at {} thread{}, because cores were taken away while more were probed ({:.3g})", at->first, at->first == 1 ? "" : "s", more.value);
      more.value = at->second.value;
    }
  };
  for (Peak& p : m.peaks) {
    raise(p.rate);
    raise(p.best);
  }
  for (MemoryLevel& l : m.levels)
    for (PerThreads& rates : l.rate) raise(rates);
}

void check_machine(const Machine& m) {
  if (m.name.empty()) throw_input("the machine has no name");
  if (m.peaks.empty()) throw_input(fmt::format("machine '{}' has no peak", m.name), {}, "give at least one [peak.DTYPE] section");
  if (m.levels.empty()) throw_input(fmt::format("machine '{}' has no memory level", m.name), {}, "give at least [memory.DRAM]");
  if (m.cores <= 0) throw_input(fmt::format("machine '{}' has no cores", m.name));
  for (const Peak& p : m.peaks) {
    const std::string what = fmt::format("the {} peak", dtype_name(p.dtype));
    if (p.rate.empty()) throw_input(what + " has no rate");
    check_figures(what, p.rate);
    check_figures(what + " at the maximum clock", p.best);
    for (const auto& [threads, best] : p.best) {
      const auto rate = p.rate.find(threads);
      if (rate != p.rate.end() && rate->second.value > best.value)
        throw_input(fmt::format("{}: rate exceeds best, the bound that no measurement may exceed", what));
    }
  }
  for (size_t i = 0; i < m.levels.size(); ++i) {
    const MemoryLevel& l = m.levels[i];
    const bool last = i + 1 == m.levels.size();
    if (!last && !l.capacity) throw_input(fmt::format("memory level {} has no capacity", l.name));
    for (int a = 0; a < kAccesses; ++a) check_figures(fmt::format("the {} rate of {}", access_name(static_cast<Access>(a)), l.name), l.rate[a]);
    if (last && l.rate[0].empty()) throw_input(fmt::format("the outermost memory level {} has no read rate", l.name));
    if (i > 0 && l.capacity && m.levels[i - 1].capacity && l.capacity->value < m.levels[i - 1].capacity->value)
      throw_input(fmt::format("memory level {} is smaller than {}, which stands before it", l.name, m.levels[i - 1].name), {}, "list levels nearest first");
  }
  for (const GemmCurve& c : m.gemm_curves) {
    if (c.rows.size() < 2 || c.rows.size() != c.seconds.size()) throw_input(fmt::format("the curve for n = {}, k = {} needs two or more rows, each with a time", c.n, c.k));
    for (size_t i = 0; i < c.rows.size(); ++i)
      if (!(c.seconds[i] > 0) || (i > 0 && c.rows[i] <= c.rows[i - 1])) throw_input(fmt::format("the curve for n = {}, k = {} must have ascending rows and positive times", c.n, c.k));
  }
}

}  // namespace fathom
