// The two bounds for one op: light (no honest measurement beats it) and roofline (what the probed ceilings allow).
//
//   light    = max(F / peak_best, (B - C_private)+ / bw_shared, (B - C_all)+ / bw_memory)      no launch cost, the fastest rates
//   roofline = launch + max(F / peak, exponentials x c_exp / threads, candidates x c_select / lanes, max over levels of B_level / bw(level))
//
// B_level are the bytes that pass the level: served by it or by one further out. Rates are those of the op's access pattern.
#pragma once

#include "lib/predict/prediction.hpp"
#include "lib/predict/residency.hpp"
#include "lib/predict/work.hpp"

namespace fathom {

// Figures of one machine at one thread count, looked up once.
class Ceilings {
 public:
  // threads 0: the machine's default.
  Ceilings(const Machine& machine, int threads);

  const Machine& machine() const { return *machine_; }
  int threads() const { return threads_; }

  // Throws Error(kInput) naming the type when neither it nor a wider one is known.
  const Figure& peak(DType dtype, bool best) const;
  // B/s of a level for reading `read` and writing `written` bytes together; 0 where the level has no rates (not a limit).
  double rate(int level, Access access, double read, double written) const;
  double fastest(int level) const;      // largest rate of any pattern: for light
  Provenance rate_provenance(int level) const { return rate_provenance_[static_cast<size_t>(level)]; }
  int levels() const { return levels_; }
  double launch() const { return launch_; }
  double region() const { return region_; }
  double exponential() const { return exponential_; }  // s per element and thread
  double candidate() const { return candidate_; }
  Binding level_binding(int level) const { return bindings_[static_cast<size_t>(level)]; }
  double private_capacity() const { return private_capacity_; }  // bytes in caches that are not shared, all threads
  double cache_capacity() const { return cache_capacity_; }      // bytes in all caches, as claimed

 private:
  const Machine* machine_;
  int threads_;
  int levels_;
  std::array<std::optional<Figure>, 7> rate_, best_;   // by DType
  std::array<std::array<double, kAccesses>, kMaxLevels> rates_{};
  std::array<Provenance, kMaxLevels> rate_provenance_{};
  std::array<Binding, kMaxLevels> bindings_{};
  double launch_ = 0, region_ = 0, exponential_ = 0, candidate_ = 0, private_capacity_ = 0, cache_capacity_ = 0;
};

// Bytes that pass each level, from residency shares at this executed size.
struct Traffic {
  std::array<double, kMaxLevels> read{}, written{};
};
Traffic traffic_of(const OpWork& work, const Residency& residency, double weight_share = 1.0);
// Slowest level of that traffic.
double memory_time(const Ceilings& ceilings, const OpWork& work, const Traffic& traffic, int* slowest = nullptr);

Prediction predict_roofline(const Ceilings& ceilings, const OpWork& work, const Residency& residency);
Prediction predict_light(const Ceilings& ceilings, const OpWork& work);

}  // namespace fathom
