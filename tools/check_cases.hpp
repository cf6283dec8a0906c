// The lists that `fathom check` runs: small networks that differ in one thing at a time, at lengths around the edges of row tiles, in every phase,
// and what the router's scores are made to be.
#pragma once

#include <string>
#include <vector>

#include "models/network.hpp"
#include "models/scenario.hpp"

namespace fathom {

// Scores are written before each selection.
enum class CheckScores : std::uint8_t {
  kComputed,
  kEqual,     // all the same: ties everywhere
  kTied,      // multiples of 1/2
  kNobody,    // below every threshold: no rows
  kEveryone,  // above it: all rows
};
std::string_view check_scores_name(CheckScores scores);

struct CheckCase {
  std::string name;
  Network network;
  Scenario scenario;  // in f32; the check sets the data types
  CheckScores scores = CheckScores::kComputed;
};

// A pass of `batch` sequences with logits everywhere; `length` tokens each, of a decode step keys.
inline Scenario small_scenario(Phase phase, std::int64_t batch, std::int64_t length) {
  Scenario s;
  s.phase = phase;
  s.batch = batch;
  s.length = length;
  s.logits = LogitsKind::kAll;
  if (phase == Phase::kDecode) s.context = length;
  return s;
}

std::vector<CheckCase> check_cases();

}  // namespace fathom
