// Time of a collective inside one node: measured table inside its range, a fitted form outside.
//
//   form:  t = (alpha^q + (sigma·sqrt(MB))^q + (f·bytes/beta)^q)^(1/q),  f = 2(g-1)/g for all_reduce, (g-1)/g otherwise
//   table: log-log interpolation in bytes between the measured sizes of the same (library, op, gpus)
//
// alpha is latency, beta bus bandwidth, and sigma the middle where protocols change: without it the two-term form errs by
// 11-13 %. `bytes` is the message as nccl-tests names it (all_gather, reduce_scatter: the gathered buffer).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::gpu {

struct CollectiveRow {
  std::string chip, library, op;
  int gpus = 0;
  double bytes = 0, time_us = 0;
};

// Columns chip,library,op,gpus,bytes,time_us in any order. Throws an input Error with file and line.
std::vector<CollectiveRow> parse_collectives(std::string_view text, const std::string& file);
std::vector<CollectiveRow> read_collectives(const std::string& file);

struct CollectiveFit {
  std::string library, op;
  int gpus = 0;
  double alpha_us = 10, sigma_us = 1, beta = 1e11, q = 2;  // beta in bytes/s of bus traffic
  std::vector<double> bytes, time_us;                      // the measured points, ascending in bytes
  double form_error = 0;   // mean |form/meas - 1| over the points, percent (fitted on them)
  double table_error = 0;  // the same for interpolation with the graded point left out, percent

  double form_s(double message_bytes) const;
};

// One fit per (library, op, gpus) of the chip's rows; groups of fewer than five sizes are an input Error.
std::vector<CollectiveFit> fit_collectives(const std::vector<CollectiveRow>& rows, std::string_view chip);

struct CollectivePrediction {
  double seconds = 0, low_s = 0, high_s = 0;
  std::string library;
  const char* provenance = "";  // "probed" inside the table, "extrapolated" outside its sizes or between its gpu counts
};

// `library` empty: the fastest of those measured. One rank takes no time. A gpu count between measured ones is interpolated
// in log2 of the count; one above all measured (a group that spans nodes) or an unmeasured op is an input Error: a
// collective is priced or refused.
CollectivePrediction predict_collective(const std::vector<CollectiveFit>& fits, std::string_view op, int gpus, double bytes,
                                        std::string_view library = {});

}  // namespace fathom::gpu
