#include "reports/record.hpp"

#include <fmt/format.h>

#include <limits>

#include "lib/error.hpp"
#include "reports/columns.hpp"
#include "reports/csv.hpp"
#include "reports/format.hpp"
#include "reports/record_check.hpp"

namespace fathom {
namespace {

std::string_view severity_name(Note::Severity severity) {
  switch (severity) {
    case Note::Severity::kNote: return "note";
    case Note::Severity::kWarning: return "warning";
    case Note::Severity::kSkipped: return "skipped";
  }
  return "note";
}

// Members of an open object; missing numbers are null and their reasons stand in "status": one sentence where nothing is null (why an op has no
// grade), else an object with a reason per key.
void write_members(JsonWriter& json, const Figures& figures) {
  bool missing = false;
  for (const auto& [key, cell] : figures.items()) missing = missing || cell.missing();
  const Cell* sentence = figures.find("status");
  for (const auto& [key, cell] : figures.items()) {
    if (cell.missing()) {
      json.key(key).null();
    } else if (!cell.empty() && !(missing && &cell == sentence)) {
      json.key(key);
      write_cell(json, cell);
    }
  }
  if (!missing) return;
  json.key("status").begin_object();
  for (const auto& [key, cell] : figures.items())
    if (cell.missing()) json.member(key, cell.missing()->reason);
  if (sentence && sentence->words() && figures.has("verdict")) json.member("verdict", *sentence->words());
  json.end_object();
}

void write_samples(JsonWriter& json, std::string_view name, const std::vector<double>& samples) {
  if (samples.empty()) return;
  json.key(name).begin_array();
  for (const double sample : samples) json.value(sample);
  json.end_array();
}

// `samples`: an array of each row, or none at all.
void write_rows(JsonWriter& json, std::string_view name, const std::vector<Figures>& rows, std::string_view samples_name = "", const std::vector<std::vector<double>>& samples = {}) {
  if (rows.empty()) return;
  json.key(name).begin_array();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    json.begin_object();
    write_members(json, rows[i]);
    if (i < samples.size()) write_samples(json, samples_name, samples[i]);
    json.end_object();
  }
  json.end_array();
}

void write_notes(JsonWriter& json, const std::vector<RecordNote>& notes) {
  if (notes.empty()) return;
  json.key("notes").begin_array();
  for (const RecordNote& note : notes) json.begin_object().member("severity", severity_name(note.severity)).member("text", note.text).end_object();
  json.end_array();
}

void write_result(JsonWriter& json, const Result& result) {
  json.member("model", result.model);
  if (!result.fingerprint.empty()) json.member("fingerprint", result.fingerprint);
  json.key("scenario").begin_object();
  write_members(json, result.scenario);
  json.end_object();
  json.key("machine");
  if (result.machine.empty())
    json.null();
  else
    json.begin_object().member("name", result.machine).member("hash", result.machine_hash).end_object();
  json.key("convention").begin_object().member("name", result.convention).key("flops");
  write_cell(json, result.convention_flops);
  json.end_object();
  json.key("totals").begin_object();
  write_members(json, result.totals);
  write_samples(json, "samples_s", result.samples_s);
  json.end_object();
  write_rows(json, "parts", result.parts);
  write_rows(json, "ops", result.ops, "rounds_s", result.rounds_s);
  if (!result.routing.empty()) write_routing(json.key("routing"), result.routing);
  write_notes(json, result.notes);
}

Cell read_cell(const JsonValue& value) {
  if (value.is_string()) return Cell::text(value.as_string());
  if (const bool* flag = std::get_if<bool>(&value.data)) return Cell::text(*flag ? "true" : "false");
  if (!value.is_number()) return Cell();
  const std::string& token = std::get<JsonValue::Number>(value.data).token;
  if (token.find_first_not_of("0123456789") == std::string::npos) return Cell::count(value.as_u128());
  return Cell::number(value.as_double());
}

Figures read_figures(const JsonValue& object) {
  Figures figures;
  const JsonValue* status = object.find("status");
  for (const auto& [key, value] : object.as_object()) {
    if (key == "status" || value.is_array() || value.is_object()) continue;
    const JsonValue* reason = value.is_null() && status && status->is_object() ? status->find(key) : nullptr;
    figures.set(key, reason ? Cell::status(reason->as_string()) : read_cell(value));
  }
  // The sentence of a row: under the verdict where other keys have reasons of their own.
  const JsonValue* sentence = status && status->is_object() && figures.has("verdict") ? status->find("verdict") : status;
  if (sentence && sentence->is_string()) figures.set("status", Cell::text(sentence->as_string()));
  return figures;
}

std::vector<Figures> read_rows(const JsonValue& result, std::string_view name) {
  std::vector<Figures> rows;
  if (const JsonValue* list = result.find(name))
    for (const JsonValue& row : list->as_array(name)) rows.push_back(read_figures(row));
  return rows;
}

std::vector<double> read_samples(const JsonValue& object, std::string_view name) {
  std::vector<double> samples;
  if (const JsonValue* list = object.find(name))
    for (const JsonValue& value : list->as_array(name)) samples.push_back(value.as_double());
  return samples;
}

std::vector<RecordNote> read_notes(const JsonValue& object) {
  std::vector<RecordNote> notes;
  const JsonValue* list = object.find("notes");
  if (!list) return notes;
  for (const JsonValue& entry : list->as_array("notes")) {
    RecordNote note;
    if (entry.is_string()) {
      note.text = entry.as_string();
    } else {
      note.text = entry.at("text").as_string();
      const JsonValue* severity = entry.find("severity");
      if (severity && severity->as_string() == "warning") note.severity = Note::Severity::kWarning;
      if (severity && severity->as_string() == "skipped") note.severity = Note::Severity::kSkipped;
    }
    notes.push_back(note);
  }
  return notes;
}

std::string name_of(const JsonValue& value) {
  if (value.is_string()) return value.as_string();
  if (value.is_object()) return value.at("name").as_string();
  return {};
}

std::string text_or_empty(const JsonValue& object, std::string_view key) {
  const JsonValue* found = object.find(key);
  return found && found->is_string() ? found->as_string() : std::string();
}

// Errors of `object` stand at its place in the file.
RoutingRecord read_routing_at(const JsonValue& object, const std::string& pointer) {
  try {
    return read_routing(object);
  } catch (const Error& error) {
    throw Error(error.kind(), error.message(), {error.where().file, error.where().line, pointer + "/" + error.where().key}, error.hint());
  }
}

Result read_result(const JsonValue& object, const std::string& pointer) {
  Result result;
  result.model = name_of(object.at("model"));
  result.fingerprint = text_or_empty(object, "fingerprint");
  result.scenario = read_figures(object.at("scenario"));
  if (const JsonValue* machine = object.find("machine"); machine && !machine->is_null()) {
    result.machine = name_of(*machine);
    if (machine->is_object()) result.machine_hash = text_or_empty(*machine, "hash");
  }
  if (const JsonValue* convention = object.find("convention")) {
    result.convention = convention->at("name").as_string();
    result.convention_flops = read_cell(convention->at("flops"));
  }
  result.totals = read_figures(object.at("totals"));
  result.parts = read_rows(object, "parts");
  result.samples_s = read_samples(object.at("totals"), "samples_s");
  result.ops = read_rows(object, "ops");
  if (const JsonValue* ops = object.find("ops"))
    for (const JsonValue& op : ops->as_array("ops")) result.rounds_s.push_back(read_samples(op, "rounds_s"));
  if (const JsonValue* routing = object.find("routing")) result.routing = read_routing_at(*routing, pointer);
  result.notes = read_notes(object);
  return result;
}

}  // namespace

void Figures::set(std::string_view key, Cell value) {
  for (auto& [name, cell] : items_) {
    if (name == key) {
      cell = std::move(value);
      return;
    }
  }
  items_.emplace_back(std::string(key), std::move(value));
}

const Cell* Figures::find(std::string_view key) const {
  for (const auto& [name, cell] : items_)
    if (name == key) return &cell;
  return nullptr;
}

double Figures::number(std::string_view key) const {
  const Cell* cell = find(key);
  return cell && cell->is_number() ? cell->value() : std::numeric_limits<double>::quiet_NaN();
}

std::string write_record(const Record& record) {
  JsonWriter json;
  json.begin_object().member("schema", kRecordSchema).member("command", record.command).member("arguments", record.arguments);
  json.member("version", record.version);
  if (!record.started.empty()) json.member("started", record.started);
  if (!record.predicted_at.empty()) json.member("predicted_at", record.predicted_at);
  if (!record.environment.items().empty()) {
    json.key("environment").begin_object();
    write_members(json, record.environment);
    json.end_object();
  }
  if (!record.sources.empty()) {
    json.key("sources").begin_array();
    for (const RecordSource& source : record.sources) {
      json.begin_object().member("file", source.file).member("command", source.command).member("arguments", source.arguments).member("version", source.version).member("started", source.started);
      json.key("environment").begin_object();
      write_members(json, source.environment);
      json.end_object().end_object();
    }
    json.end_array();
  }
  if (record.results.size() == 1 && record.sources.empty()) {
    Result result = record.results[0];
    result.notes.insert(result.notes.begin(), record.notes.begin(), record.notes.end());
    write_result(json, result);
  } else {
    json.key("results").begin_array();
    for (const Result& result : record.results) {
      json.begin_object();
      write_result(json, result);
      json.end_object();
    }
    json.end_array();
    write_notes(json, record.notes);
  }
  json.end_object();
  return json.finish();
}

Record read_record(std::string_view text, const std::string& file) {
  const JsonValue root = parse_json(text, file);
  const JsonValue* schema = root.find("schema");
  if (!schema)
    throw_input("this JSON file is no fathom record: it has no `schema` key", {file, 0, "schema"}, fmt::format("records are written by --save FILE.json and carry \"schema\": \"{}\"", kRecordSchema));
  if (!schema->is_string() || schema->as_string() != kRecordSchema) {
    JsonWriter found(0);
    write_json(found, *schema);
    std::string value = found.finish();
    value.resize(std::min<std::size_t>(value.find('\n'), 60));
    throw_input(fmt::format("is {}, and this program reads \"{}\" only", value, kRecordSchema), {file, 0, "schema"},
                "a record of a later fathom is read by that version or a later one (fathom --version); else save it again with this one: its `arguments` say how");
  }
  Record record;
  try {
    check_record_figures(root, file);
    record.command = text_or_empty(root, "command");
    record.arguments = text_or_empty(root, "arguments");
    record.version = text_or_empty(root, "version");
    record.started = text_or_empty(root, "started");
    record.predicted_at = text_or_empty(root, "predicted_at");
    if (const JsonValue* environment = root.find("environment")) record.environment = read_figures(*environment);
    if (const JsonValue* sources = root.find("sources"))
      for (const JsonValue& source : sources->as_array("sources"))
        record.sources.push_back({text_or_empty(source, "file"), text_or_empty(source, "command"), text_or_empty(source, "arguments"), text_or_empty(source, "version"),
                                  text_or_empty(source, "started"), read_figures(source.at("environment"))});
    if (const JsonValue* results = root.find("results")) {
      for (const JsonValue& result : results->as_array("results")) record.results.push_back(read_result(result, fmt::format("/results/{}", record.results.size())));
      record.notes = read_notes(root);
    } else {
      record.results.push_back(read_result(root, ""));
    }
  } catch (const Error& error) {
    throw Error(error.kind(), error.message(), {file, error.where().line, error.where().key}, error.hint());
  }
  return record;
}

void refuse_mixed_counts(const std::vector<const Record*>& records, const std::vector<std::string>& files) {
  std::string first, first_file;
  for (std::size_t i = 0; i < records.size(); ++i)
    for (const Result& result : records[i]->results) {
      const Cell* mask = result.scenario.find("mask");
      const std::string rule = (result.convention.empty() ? "exact" : result.convention) + (mask ? fmt::format(" with a {} mask", exact_text(*mask)) : "");
      if (first.empty()) first = rule, first_file = files[i];
      if (rule != first)
        throw_input(fmt::format("FLOPs of {} are counted by '{}', those of {} by '{}'", first_file, first, files[i] == first_file ? "the same file" : files[i], rule), {},
                    "one report has one convention: count again with one --convention (and one mask)");
    }
}

Record join_records(std::vector<Record> records, const std::vector<std::string>& files) {
  std::vector<const Record*> all_records;
  for (const Record& record : records) all_records.push_back(&record);
  refuse_mixed_counts(all_records, files);
  if (records.size() == 1) return std::move(records[0]);
  Record all;
  all.command = "report";
  for (std::size_t i = 0; i < records.size(); ++i) {
    Record& record = records[i];
    if (record.sources.empty()) all.sources.push_back({files[i], record.command, record.arguments, record.version, record.started, record.environment});
    for (RecordSource& source : record.sources) all.sources.push_back(std::move(source));
    for (Result& result : record.results) {
      if (!result.scenario.has("record")) result.scenario.set("record", Cell::text(files[i]));
      all.results.push_back(std::move(result));
    }
    for (RecordNote& note : record.notes) all.notes.push_back({note.severity, files[i] + ": " + note.text});
  }
  return all;
}

}  // namespace fathom
