// Two records of the same configurations, for example before and after a change of the code: what became slower or faster, and whether
// that is more than noise.
//
// A median is known to  u = max(A/A noise, 2 * 0.93 * spread / sqrt(samples))  (0.93 IQR / sqrt(n) is the standard error of the median of
// normal samples; A/A noise is how far two interleaved measurements of one thing differed in that run). The noise of a change is both u in
// quadrature. What differs between two runs but is constant within each (another clock, another neighbour on the machine) is in neither:
// records of one machine, made one after the other, are what this is for.
#pragma once

#include <string>
#include <vector>

#include "reports/record.hpp"

namespace fathom {

struct TimeChange {
  std::string figure;      // "measured_s", "predicted_s", "ttft_s", "tpot_s"
  double before = 0;       // seconds
  double after = 0;
  double change = 0;       // after / before - 1
  double noise = 0;        // of `change`; NaN where a record has no spread to judge by
  bool told() const;              // more than noise; predictions have none
  std::string judgement() const;  // "slower", "faster", "same", "within noise", "no noise figure"
};

struct OpChange {
  std::string path;
  TimeChange time;
};

// One configuration that both records have.
struct ResultDifference {
  const Result* before = nullptr;
  const Result* after = nullptr;
  std::vector<TimeChange> times;
  std::vector<std::string> lost;        // "measured_s": times that only the first has
  std::vector<OpChange> ops;            // ops that both have measured
  std::vector<std::string> counts;      // "matmul FLOP 100 -> 90": exact figures that differ
};

// Points into the two records.
struct RecordDifference {
  std::vector<ResultDifference> pairs;
  std::vector<const Result*> only_before, only_after;
  std::vector<RecordNote> notes;        // other machine, backend, version, threads: what makes times incomparable
};

// Configurations are joined by op list (fingerprint) and scenario, else by name and scenario. Throws Error(kInput) when none can be joined.
RecordDifference compare_records(const Record& before, const Record& after);

// "mod-60m, prefill, batch 1, seq 2048".
std::string configuration_text(const Result& result);

// The report. `names`: of the two records; `ops`: a table of ops per configuration.
// `keys`: which time a row is about by its key, for files; else by its heading.
Document view_difference(const RecordDifference& difference, const std::string& before_name, const std::string& after_name, bool ops, bool keys = false);

}  // namespace fathom
