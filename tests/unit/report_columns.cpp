// The glossary: complete for the keys scripts may rely on, unique, findable, and in step with the JSON schema.
#include "reports/columns.hpp"

#include <catch2/catch.hpp>
#include <set>

#include "lib/error.hpp"
#include "reports/json_reader.hpp"
#include "reports/save.hpp"
#include "reports/terms.hpp"

using namespace fathom;

TEST_CASE("every key that scripts may rely on is explained", "[reports]") {
  for (const char* key : {"model",
                          "machine",
                          "flops_matmul",
                          "elements_vector",
                          "bytes_read",
                          "bytes_written",
                          "params_total",
                          "params_active",
                          "kv_bytes",
                          "kv_bytes_per_token",
                          "peak_bytes",
                          "predicted_s",
                          "measured_s",
                          "path",
                          "kind",
                          "verdict",
                          "flops_expected",
                          "predicted_lo_s",
                          "predicted_hi_s",
                          "p50_s",
                          "p95_s",
                          "p99_s",
                          "rows_declared",
                          "rows_expected",
                          "rows_executed",
                          "flops_ratio",
                          "predicted_ratio",
                          "measured_ratio",
                          "realised"}) {
    CHECK(find_column(key) != nullptr);
  }
}

TEST_CASE("entries are unique sentences and file keys carry their base unit", "[reports]") {
  std::set<std::string_view> keys;
  for (const Column& column : all_columns()) {
    INFO(column.key);
    CHECK(keys.insert(column.key).second);
    CHECK(column.meaning.ends_with('.'));
    CHECK(column.formula.find('`') == std::string_view::npos);  // it is shown as code whole
    CHECK(!column.label.empty());
    CHECK(!column.where.empty());
    CHECK(!base_unit(column).empty());
    CHECK((column.unit == Unit::kSeconds) == (column.key.ends_with("_s") && !column.key.ends_with("_per_s")));
    if (column.key.ends_with("_bytes") || column.key.starts_with("bytes_")) CHECK(column.unit == Unit::kBytes);
  }
}

TEST_CASE("lookup takes JSON paths and suggests names", "[reports]") {
  CHECK(lookup_column("totals.predicted_s").key == "predicted_s");
  CHECK(lookup_column("ops[].verdict").key == "verdict");
  CHECK(lookup_column("convention.flops").key == "convention_flops");
  // Headings as tables have them; a key goes before a heading of the same word ("kernels").
  CHECK(lookup_column("predicted").key == "predicted_s");
  CHECK(lookup_column("of peak").key == "peak_fraction");
  CHECK(lookup_column("of_peak").key == "peak_fraction");  // as a shell likes it
  CHECK(lookup_column("a/a noise").key == "noise");
  CHECK(lookup_column("KV cache").key == "kv_bytes");
  CHECK(find_heading("normalised") == find_column("normalised_s"));
  CHECK(find_heading("normal") == nullptr);
  CHECK(find_heading("") == nullptr);
  try {
    lookup_column("predictd_s", "--columns");
    FAIL("found");
  } catch (const Error& error) {
    CHECK(error.where().key == "--columns");
  }
  try {
    lookup_column("predictd_s");
    FAIL("found");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
    CHECK(error.hint().find("predicted_s") != std::string::npos);
  }
}

TEST_CASE("words of reports are sentences, found by each of their names, and by one entry each", "[reports]") {
  std::set<std::string> names;
  for (const ReportTerm& term : all_terms()) {
    INFO(term.names);
    CHECK(term.meaning.ends_with('.'));
    CHECK(find_term(title_of(term)) == &term);
    for (std::string_view rest = term.names; !rest.empty();) {
      const std::size_t end = std::min(rest.find(';'), rest.size());
      CHECK(names.insert(std::string(rest.substr(0, end))).second);
      CHECK(find_term(rest.substr(0, end)) == &term);
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  CHECK(title_of(*find_term("top-k")) == "topk");
  CHECK(find_term("Mixture-of-Depths") == find_term("mod"));
  CHECK(find_term("worst_error") == find_term("Worst Error"));
  CHECK(find_term("") == nullptr);
  CHECK(find_term("nothing") == nullptr);
}

TEST_CASE("the schema's quantities are all in the glossary", "[reports]") {
  const JsonValue schema = parse_json(load_file(FATHOM_SOURCE_DIR "/reports/record.schema.json"), "record.schema.json");
  int seen = 0;
  for (const char* group : {"counts", "times", "totals", "op"}) {
    const JsonValue* properties = schema.find_path(std::string("$defs.") + group + ".properties");
    REQUIRE(properties != nullptr);
    for (const auto& [key, value] : properties->as_object()) {
      INFO(key);
      CHECK(find_column(key) != nullptr);
      ++seen;
    }
  }
  CHECK(seen > 25);
}
