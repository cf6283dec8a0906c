// The tables of a report that is made of a record: which figures stand in which table, and which of them a reader is shown.
//
// A record holds some forty figures of a configuration and as many of an op. A terminal drops what does not fit its width; a page
// (Markdown, HTML) has no width to go by, so there each table holds the figures that are read most, and names those it leaves out.
#pragma once

#include <string>
#include <vector>

#include "reports/record.hpp"

namespace fathom {

// Columns of `lead`, then of `wanted`, that any row has; empty columns are left out.
ReportTable make_table(std::string key, std::string title, const std::vector<Figures>& rows, const std::vector<std::string>& lead, const std::vector<std::string>& wanted);
// The heading of times that were measured one op at a time, and add up to the normalised step and not to the one that ran as a whole.
inline constexpr const char* kOpByOp = "measured, op by op";
// Of the `leading` columns, lets a narrow terminal drop last those that tell rows apart, and early those that say the same in every row.
void keep_names(ReportTable& table, std::size_t leading);
// Another heading for the column `key`, where the table has it.
void name_column(ReportTable& table, std::string_view key, const char* label);
// Every key that any row has, in order of first use.
std::vector<std::string> all_keys(const std::vector<Figures>& rows);
// The figures with model, scenario and machine before them.
Figures identified(const Result& result, const Figures& figures);
// The identifying columns that tell rows apart; what all rows share is said once, in the paragraph of what was asked.
std::vector<std::string> varying(const std::vector<Figures>& rows);

inline constexpr const char* kTooNoisy = "noise too large";

// How far the realised fraction may be off: the noise of the time ratio over the share of FLOPs saved. 0 where nothing was measured, or nothing saved.
double realised_noise(const Figures& totals);
// The realised fraction, or why there is none. One that may be off by half says nothing, and is not said.
Cell realised_cell(const Figures& totals);

// Configurations, times, counts and memory, ratios to the dense twin and to the first model, profile.
void add_result_tables(Document& document, const Record& record, const ViewOptions& options);
// Sums of ops by part of the model and, in training, by pass.
void add_sum_tables(Document& document, const Record& record);
// The ops of a configuration, and why some were not graded.
void add_op_tables(Document& document, const Result& result, const ViewOptions& options);

}  // namespace fathom
