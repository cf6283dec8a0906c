// What `fathom explain` knows beyond op kinds and conventions: totals, columns with their value for a model, and every name that `fathom list` gives.
#pragma once

#include <string>

#include "reports/columns.hpp"
#include "reports/document.hpp"
#include "lib/op.hpp"
#include "tools/cli.hpp"
#include "tools/count_run.hpp"

namespace fathom {

// explain total: how a total is formed.
void explain_total_into(Document& document);
// explain total MODEL: every op with FLOPs with its formula in numbers, the sum of each part, and the sum of all.
void explain_total_into(Document& document, const Configuration& configuration);

// Whether a column follows from --run-tokens, or from --step-time, --peak and --devices; whether another --convention gives another figure.
bool of_a_run(const Column& column);
bool of_a_convention(const Column& column);
// Meaning, unit, formula and source of a column.
void explain_column_into(Document& document, const Column& column);
// The same with its value for a model, and the parts or ops that it is the sum of. Columns of predictions and measurements name the command to ask.
// `convention`: "" or a preset's name.
void explain_column_into(Document& document, const Column& column, const Configuration& configuration, const RunFlags& run, const std::string& convention);

// The visible (query, key) pairs of an attention op, counted from its numbers; "" of other ops.
std::string pairs_with_numbers(const OpSpec& spec);

// What the exit status of a command says.
void explain_exit_codes_into(Document& document);
// The file with options for every run (tools/defaults.hpp).
void explain_defaults_into(Document& document);

// A word of reports (reports/terms.hpp), a part of the model or a key of network files; false where `name` is none of them.
bool explain_term_into(Document& document, const std::string& name);

// A built-in model, machine or backend; false where `name` is none.
bool explain_name_into(Document& document, const std::string& name);

}  // namespace fathom
