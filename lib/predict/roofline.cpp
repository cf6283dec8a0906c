#include "lib/predict/roofline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace fathom {
namespace {

constexpr double kTinyShare = 1e-3;        // of an op's bytes: too few to call a level the one that binds
constexpr double kGpuCacheBytesPerClock = 128;  // per SM and clock: where nothing better is known
// Of fetched bandwidth over what was probed: rates on a shared host wander upwards too, and light must not be beaten by that.
constexpr double kLightBandwidthMargin = 1.25;

}  // namespace

Ceilings::Ceilings(const Machine& machine, int threads)
    : machine_(&machine), threads_(threads > 0 ? threads : machine.default_threads()), levels_(std::min<int>(kMaxLevels, static_cast<int>(machine.levels.size()))) {
  const bool gpu = machine.kind == MachineKind::kGpu;
  const int key = gpu ? 0 : threads_;
  for (const Peak& p : machine.peaks) {
    const auto at = static_cast<size_t>(p.dtype);
    rate_[at] = figure_at(p.rate, key);
    best_[at] = p.best.empty() ? rate_[at] : figure_at(p.best, key);
    if (best_[at] && rate_[at] && best_[at]->value < rate_[at]->value) best_[at]->value = rate_[at]->value;
  }
  for (int l = 0; l < levels_; ++l) {
    const MemoryLevel& level = machine.levels[static_cast<size_t>(l)];
    const auto i = static_cast<size_t>(l);
    bindings_[i] = level.name == "L1" ? Binding::kL1 : level.name == "L2" ? Binding::kL2 : level.name == "L3" ? Binding::kL3 : Binding::kDram;
    rate_provenance_[i] = Provenance::kProbed;
    for (int a = 0; a < kAccesses; ++a) {
      // A pattern that was not probed runs as the next plainer one: gather and update like copy, copy like read.
      std::optional<Figure> f = figure_at(level.rate[a], key);
      for (int b = a == static_cast<int>(Access::kCopy) ? 0 : 1; !f && b >= 0; --b) f = figure_at(level.rate[b], key);
      if (!f && gpu && l + 1 < levels_ && machine.clock)
        f = Figure{kGpuCacheBytesPerClock * machine.clock->value * static_cast<double>(machine.cores), Provenance::kExtrapolated, "128 B per clock and SM"};
      if (!f) continue;
      rates_[i][static_cast<size_t>(a)] = f->value;
      rate_provenance_[i] = weaker(rate_provenance_[i], f->provenance);
    }
    if (l + 1 < levels_) {
      const auto& claimed = level.claimed ? level.claimed : level.capacity;
      const double bytes = claimed ? claimed->value * (level.shared ? 1.0 : static_cast<double>(gpu ? machine.cores : threads_)) : 0;
      cache_capacity_ += bytes;
      if (!level.shared) private_capacity_ += bytes;
    }
  }
  const auto value = [&](const PerThreads& figures) {
    const auto f = figure_at(figures, key);
    return f ? f->value : 0.0;
  };
  launch_ = value(machine.launch);
  region_ = gpu || threads_ <= 1 ? 0.0 : value(machine.region);
  exponential_ = machine.exp_element ? machine.exp_element->value : 0;
  candidate_ = machine.select_element ? machine.select_element->value : 0;
}

const Figure& Ceilings::peak(DType dtype, bool best) const {
  const auto& table = best ? best_ : rate_;
  // Without a unit for the type, kernels widen to f32; f16 and bf16 share tensor units where only one is listed.
  const DType other = dtype == DType::kF16 ? DType::kBF16 : dtype == DType::kBF16 ? DType::kF16 : DType::kF32;
  for (const DType candidate : {dtype, other, DType::kF32})
    if (const auto& f = table[static_cast<size_t>(candidate)]) return *f;
  throw_input(fmt::format("machine '{}' has no {} peak", machine_->name, dtype_name(dtype)), {}, "add a [peak] section for this type");
}

double Ceilings::rate(int level, Access access, double read, double written) const {
  const auto& r = rates_[static_cast<size_t>(level)];
  if (access == Access::kUpdate || access == Access::kGather) return r[static_cast<size_t>(access)];
  const double reading = r[static_cast<size_t>(Access::kRead)], copying = r[static_cast<size_t>(Access::kCopy)];
  if (!(reading > 0) || !(copying > 0)) return reading;
  // As much of the reading as there is writing goes at the copy rate, the rest at the read rate; writes beyond that cost like copies.
  const double total = read + written;
  if (!(total > 0)) return reading;
  const double copied = std::min(total, 2 * written);
  return total / (copied / copying + (total - copied) / reading);
}

double Ceilings::fastest(int level) const {
  const auto& r = rates_[static_cast<size_t>(level)];
  return *std::max_element(r.begin(), r.end());
}

Traffic traffic_of(const OpWork& work, const Residency& residency, double weight_share) {
  Traffic t;
  const double weights = std::min(work.read, residency.weight_bytes * weight_share);
  const double others = work.read - weights;
  double read = 0, written = 0;
  for (int l = kMaxLevels - 1; l >= 0; --l) {  // what is served further out passes this level too
    const auto i = static_cast<size_t>(l);
    read += weights * residency.weights[i] + others * residency.reads[i];
    written += work.written * residency.writes[i];
    t.read[i] = read;
    t.written[i] = written;
  }
  return t;
}

double memory_time(const Ceilings& ceilings, const OpWork& work, const Traffic& traffic, int* slowest) {
  double worst = 0;
  const double all = work.read + work.written;
  if (slowest) *slowest = -1;
  for (int l = 0; l < ceilings.levels(); ++l) {
    const auto i = static_cast<size_t>(l);
    const double bytes = traffic.read[i] + traffic.written[i];
    if (!(bytes > 0)) continue;
    const double rate = ceilings.rate(l, work.access, traffic.read[i], traffic.written[i]);
    if (!(rate > 0)) continue;
    const double time = bytes / rate;
    if (time > worst) {
      worst = time;
      if (slowest && bytes > kTinyShare * all) *slowest = l;
    }
  }
  return worst;
}

Prediction predict_roofline(const Ceilings& c, const OpWork& work, const Residency& residency) {
  Prediction p;
  if (work.flops + work.read + work.written + work.exponentials + work.candidates <= 0) {
    p.provenance = Provenance::kProbed;
    return p;  // no rows, no call
  }
  const double threads = std::max(1, c.threads());
  const bool gpu = c.machine().kind == MachineKind::kGpu;
  double arithmetic = 0;
  p.provenance = Provenance::kProbed;
  if (work.flops > 0) {
    const Figure& peak = c.peak(work.dtype, false);
    arithmetic = work.flops / peak.value;
    p.provenance = weaker(p.provenance, peak.provenance);
  }
  double elements = 0;
  if (!gpu) {
    elements = std::max(work.exponentials * c.exponential() / threads, work.candidates * c.candidate() / std::max(1.0, std::min(threads, work.lanes)));
  }
  int level = -1;
  p.memory = memory_time(c, work, traffic_of(work, residency), &level);
  if (level >= 0) p.provenance = weaker(p.provenance, c.rate_provenance(level));
  p.compute = std::max(arithmetic, elements);
  p.launch = c.launch() + c.region();
  p.seconds = p.launch + std::max(p.compute, p.memory);
  p.lo = p.hi = p.seconds;
  if (p.launch > std::max(p.compute, p.memory))
    p.binding = Binding::kLaunch;
  else if (p.compute >= p.memory)
    p.binding = arithmetic >= elements ? Binding::kCompute : Binding::kElements;
  else
    p.binding = level >= 0 ? c.level_binding(level) : Binding::kDram;
  return p;
}

Prediction predict_light(const Ceilings& c, const OpWork& work) {
  Prediction p;
  p.provenance = Provenance::kProbed;
  const double bytes = work.read + work.written;
  if (work.flops > 0) {
    const Figure& peak = c.peak(work.dtype, true);
    p.compute = work.flops / peak.value;
    p.provenance = peak.provenance;
  }
  const int last = c.levels() - 1;
  const bool gpu = c.machine().kind == MachineKind::kGpu;
  const double margin = gpu ? 1.0 : kLightBandwidthMargin;
  int level = -1;
  for (int l = 0; l <= last; ++l) {
    const bool memory = l == last;
    if (!memory && !c.machine().levels[static_cast<size_t>(l)].shared) continue;
    // What no nearer cache can hold must pass here.
    const double beyond = std::max(0.0, bytes - (memory ? c.cache_capacity() : c.private_capacity()));
    const double rate = c.fastest(l) * margin;
    if (rate > 0 && beyond / rate > p.memory) {
      p.memory = beyond / rate;
      level = l;
    }
  }
  if (level >= 0) p.provenance = weaker(p.provenance, c.rate_provenance(level));
  p.seconds = p.lo = p.hi = std::max(p.compute, p.memory);
  p.binding = !(p.seconds > 0) ? Binding::kNothing : p.compute >= p.memory ? Binding::kCompute : c.level_binding(level);
  return p;
}

}  // namespace fathom
