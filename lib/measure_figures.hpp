// From the samples of a measurement to its figures: what lib/measure.cpp takes, what it makes of it at the end. For the two files of the
// measurement only.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lib/measure.hpp"

namespace fathom {

// One sample of one instance, with the references around it.
struct Sample {
  int instance = 0;
  int round = 0;
  double seconds = 0;
  double before = 0, after = 0;
  double ceiling_before = 0, ceiling_after = 0;  // FLOPs of the ceiling in a reference's time, as last probed
};

// The probed ceiling of one reference class.
struct Ceiling {
  bool absent = false;
  double due = 0;                // not before this moment again
  double work = 0;               // FLOPs that the ceiling does in the time of one reference, as last probed
  std::vector<double> rates;
};

// Everything known about one workload while it is measured.
struct Subject {
  Execution* execution = nullptr;
  std::vector<Instance> instances;
  std::vector<std::int64_t> use;   // per instance: which use of its op in a pass
  std::vector<int> classes;        // reference class per op
  std::vector<std::string> class_names;
  std::vector<int> batch;          // per op
  std::vector<Sample> samples;
  std::vector<double> raw;
  std::vector<double> rows, flops; // per op: sums over executed instances of all rounds
  std::vector<double> rows_before, flops_before;  // the same before the current round
  int rounds = 0;
  std::vector<Placement> raw_placements, placements;  // of each raw pass, of each round
  Measurement result;
};

// The sample's time in the machine's reference state: t / r x nominal, r the mean of the references before and after. As taken where there is no reference.
double normalised(const Sample& sample, double nominal);

// Per reference class: nominal time (the options', else the 25 % quantile), spread and noise of its samples.
std::map<std::string, ReferenceMeasurement> reference_figures(const std::map<std::string, std::vector<double>>& samples, const MeasureOptions& options);

// Keeps the rounds in which the cores lay as in most of them. A share of their last cache is another machine than one each: a median over both is of neither.
void keep_one_placement(Subject& subject);

// Fills `subject.result` from its samples: ops, classes, step. Times of the whole measurement and how it ended are the caller's.
void finish_measurement(Subject& subject, const std::map<std::string, ReferenceMeasurement>& references, const std::map<std::string, Ceiling>& ceilings, const MeasureOptions& options);

}  // namespace fathom
