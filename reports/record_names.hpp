// What a configuration of a record is called: its model and what tells it apart from the others ("`mod-60m`, batch 8").
#pragma once

#include <string>
#include <vector>

#include "reports/record.hpp"

namespace fathom {

using Results = std::vector<const Result*>;

Results all_results(const Record& record);
// One list per model, in order of appearance.
std::vector<Results> by_model(const Results& results);

// What of the scenario tells results apart: keys of varying() without the model.
std::vector<std::string> telling_apart(const Results& results);
// "`mod-60m`, batch 8"; several results of one model: "`mod-60m`, batch 1 / 8". More than four values are a first and a last one.
std::string configuration_name(const Results& results, const std::vector<std::string>& keys);
// Some of all results: "`mod-60m`, batch 1 / 8 and `dense-60m`", where a model alone means all that there are of it; "all 16 configurations"; "11 of 16
// configurations" where their names would be a list of more than eight.
std::string names_of(const Results& some, const Results& all);

bool one_model(const Results& results);

// Whether two models were given the same job. How tokens are routed and how latents are kept belong to the model.
bool same_job(const Result& a, const Result& b);

}  // namespace fathom
