// --convention on commands that make records, and what `fathom explain convention` prints.
#pragma once

#include <optional>
#include <string>

#include "models/network.hpp"
#include "models/scenario.hpp"
#include "reports/document.hpp"
#include "reports/record.hpp"

namespace CLI {
class App;
}

namespace fathom {

void add_convention_flag(CLI::App& app, std::string& convention);

// Sets the result's convention and its FLOPs (a string where they are no integer, a status where the formula says nothing about this network
// or phase); warnings go to the result's notes. Throws Error(kInput) on an unknown name. `exact` leaves the result as it is.
void apply_convention(const std::string& convention, const Network& network, const Scenario& scenario, Result& result);

// Model FLOPs of the step as the convention counts them, for MFU: nothing done again, no empty slots (models/count/utilization.hpp). Absent where the formula says
// nothing about this network or phase.
std::optional<double> model_flops(const std::string& convention, const Network& network, const Scenario& scenario);

// Every preset: who counts so and the formula.
Document explain_conventions();
// How figures stand in the document: grouped text for people, numbers (text only where a double does not hold one) for files.
enum class FigureStyle { kPeople, kData };
// Formula, source, terms, and the signed reasons for the difference to `exact`, per token and per sequence of `length`.
Document explain_convention(const std::string& convention, const Network& network, std::int64_t length, FigureStyle style);
Document explain_convention(const std::string& convention);  // without a model

}  // namespace fathom
