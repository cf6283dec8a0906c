// The options of `fathom run --corpus` and what it prints.
#pragma once

#include <string>

#include "tools/cli.hpp"
#include "tools/timed.hpp"

namespace fathom {

struct TextFlags {
  std::string file;
  std::int64_t steps = 200;
  double learning_rate = 3e-3;
};
void add_text_flags(CLI::App& app, TextFlags& flags);

// Trains every configuration on the file's bytes and prints loss curve, predictor scores and participation, and the notes. Returns the exit code.
int run_text(const TextFlags& text, const ModelFlags& models, ScenarioFlags scenario, const TimedFlags& timed, const OutputFlags& output, std::vector<RecordNote> notes);

}  // namespace fathom
