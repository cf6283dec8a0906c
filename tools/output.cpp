// Where records go: stdout in the asked format, files by extension.
#include <CLI/CLI.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>

#include "lib/error.hpp"
#include "reports/columns.hpp"
#include "reports/csv.hpp"
#include "reports/html.hpp"
#include "reports/markdown.hpp"
#include "reports/save.hpp"
#include "reports/text.hpp"
#include "reports/utf8.hpp"
#include "tools/cli.hpp"
#include "tools/output_offer.hpp"
#include "tools/plot_output.hpp"
#include "tools/terminal.hpp"
#include "tools/version.hpp"

namespace fathom {
namespace {

std::string g_arguments;
std::vector<std::string> g_argument_list;
std::string g_begun;  // the first line of a document that is not finished yet

TextOptions text_options(const OutputFlags& flags) {
  TextOptions options;
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  options.width = flags.width > 0 ? flags.width : terminal_width();
  options.colour = flags.color == "always" || (flags.color == "auto" && terminal && !std::getenv("NO_COLOR") && !terminal_is_plain());
  return options;
}

// The keys of --columns; empty where all are wanted. Throws an input Error with the nearest name.
std::vector<std::string> asked_columns(const OutputFlags& flags, bool* all = nullptr) {
  std::vector<std::string> keys;
  for (const std::string& list : flags.columns) {
    for (const std::string& name : split(list, ',')) {
      if (name != "all") keys.emplace_back(lookup_column(name, "--columns").key);
      else if (all) *all = true;
    }
  }
  return keys;
}

ViewOptions view_options(const OutputFlags& flags, const std::string& format, bool file) {
  ViewOptions options;
  options.ops = flags.ops || file;
  options.glossary = file || flags.verbose;
  options.page = format == "md" || format == "html";
  options.full_summary = flags.verbose;
  options.columns = asked_columns(flags, &options.full_summary);
  return options;
}

std::string render(const Record& record, const std::string& format, const OutputFlags& flags, bool file) {
  if (format == "json") return write_record(record);
  const bool ops = flags.ops && std::any_of(record.results.begin(), record.results.end(), [](const Result& result) { return !result.ops.empty(); });
  if (format == "csv") return render_csv(record_table(record, ops ? "ops" : "results", asked_columns(flags)), "\n");
  const Document document = view_record(record, view_options(flags, format, file || format == "html"));
  if (format == "md") return render_markdown(document);
  if (format == "html") return render_html(document);
  TextOptions text = text_options(flags);
  text.colour = text.colour && !file;
  return render_text(document, text);
}

// Markdown with its plots as SVG files beside it.
std::string markdown_file(const std::string& path, const Document& document) {
  const bool plots = !plot_files(document).empty();
  if (plots) save_plots(path, "svg", document);
  return render_markdown(document, MarkdownOptions{plots ? plot_folder_of(path) : ""});
}

// One --save file of a document.
template <class View, class Render>
void save_one(const std::string& path, bool quiet, View&& view, Render&& render) {
  const std::string format = format_of_file(path);
  if (is_plot_format(format)) {
    save_plots(path, format, view());
    if (!quiet) tell_plots(path, format);
    return;
  }
  save_file(path, format == "md" ? markdown_file(path, view()) : render(format));
}

// The document as a page that stands alone: what was asked, and the command, program and machine that make it again.
Document as_page(const Document& document, const OtherForms& forms) {
  Document page;
  page.title = document.title;
  page.paragraph("Asked: " + forms.asked + ".");
  page.parts.insert(page.parts.end(), document.parts.begin(), document.parts.end());
  KeyValues list;
  list.add_text("made by", version_text());
  list.add_text("started", utc_now());
  add_environment(list, forms.environment);
  page.heading(kMachineAndRun).add(std::move(list));
  return page.heading("Reproduce", 3).code("fathom " + g_arguments);
}

// Its first table; of a document without one, as explanations are, a row per text and fact.
std::string csv_of(const Document& data) {
  if (const std::vector<const ReportTable*> tables = tables_of(data); !tables.empty()) return render_csv(*tables.front(), "\n");
  ReportTable rows("document", "");
  for (const char* name : {"section", "name", "value"}) rows.add_column(ReportColumn{name, name, Unit::kText, 0});
  std::string section = data.title;
  const auto row = [&](const std::string& name, const Cell& value) { rows.add_row({Cell::text(section), Cell::text(name), value}); };
  for (const DocumentPart& part : data.parts) {
    if (const auto* heading = std::get_if<Heading>(&part)) section = heading->text;
    if (const auto* text = std::get_if<Paragraph>(&part)) row("text", Cell::text(text->text));
    if (const auto* note = std::get_if<Note>(&part)) row("note", Cell::text(note->text));
    if (const auto* list = std::get_if<KeyValues>(&part))
      for (const KeyValues::Item& item : list->items) row(item.label, item.value);
  }
  return render_csv(rows, "\n");
}

void write_facts(JsonWriter& json, const std::vector<const KeyValues*>& lists) {
  std::vector<std::string> written;
  json.key("facts").begin_object();
  for (const KeyValues* list : lists)
    for (const KeyValues::Item& item : list->items) {
      if (std::find(written.begin(), written.end(), item.label) != written.end()) continue;  // JSON has no key twice
      written.push_back(item.label);
      json.key(item.label);
      write_cell(json, item.value);
    }
  json.end_object();
}

// Notes as records have them.
void write_notes(JsonWriter& json, const Document& data) {
  bool begun = false;
  for (const DocumentPart& part : data.parts) {
    const auto* note = std::get_if<Note>(&part);
    if (!note) continue;
    if (!begun) json.key("notes").begin_array();
    begun = true;
    const char* const severity = note->severity == Note::Severity::kNote ? "note" : note->severity == Note::Severity::kWarning ? "warning" : "skipped";
    json.begin_object().member("severity", severity).member("text", note->text).end_object();
  }
  if (begun) json.end_array();
}

// Title, texts, notes, tables by key, facts by label; facts that stand under a heading are in `sections`.
std::string json_of(const Document& data) {
  struct Section {
    std::string heading;
    std::vector<const KeyValues*> facts;
  };
  std::vector<Section> sections(1);
  JsonWriter json;
  json.begin_object().member("title", data.title).key("text").begin_array();
  for (const DocumentPart& part : data.parts) {
    if (const auto* text = std::get_if<Paragraph>(&part)) json.value(text->text);
    if (const auto* heading = std::get_if<Heading>(&part)) sections.push_back({heading->text, {}});
    if (const auto* list = std::get_if<KeyValues>(&part)) sections.back().facts.push_back(list);
  }
  json.end_array();
  write_notes(json, data);
  json.key("tables").begin_object();
  for (const ReportTable* table : tables_of(data)) {
    json.key(table->key);
    write_table(json, *table);
  }
  json.end_object();
  write_facts(json, sections.front().facts);
  if (sections.size() > 1) {
    json.key("sections").begin_array();
    for (std::size_t i = 1; i < sections.size(); ++i) {
      json.begin_object().member("heading", sections[i].heading);
      write_facts(json, sections[i].facts);
      json.end_object();
    }
    json.end_array();
  }
  return json.end_object().finish();
}

// Of a document: `page` is it as it stands alone.
std::string render_form(const Document& document, const Document& page, const std::string& format, bool file, const OutputFlags& flags, const OtherForms& forms) {
  if (format == "md") return render_markdown(page);
  if (format == "html") return render_html(page);
  if (format == "json" && forms.json) return forms.json();
  if (format == "csv" && forms.csv) return forms.csv();
  const Document& data = forms.data ? *forms.data : document;
  if (format == "csv") return csv_of(data);
  if (format == "json") return json_of(data);
  TextOptions options = text_options(flags);
  if (file) options.colour = false;
  return render_text(document, options);
}

// As a shell reads it back: bytes that are no text, as file names may have them, are written $'caf\xe9.ini', for a report can show nothing else that runs.
std::string shell_word(const std::string& argument) {
  const bool text = valid_utf8(argument) == argument && std::none_of(argument.begin(), argument.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
  if (text && !argument.empty() && argument.find_first_of(" '\"\\$`&|;<>()*?[]{}!#~") == std::string::npos) return argument;
  std::string word = text ? "'" : "$'";
  for (const char c : argument) {
    const auto byte = static_cast<unsigned char>(c);
    if (text) word += c == '\'' ? "'\\''" : std::string(1, c);
    else if (byte < 0x20 || byte >= 0x7f) word += fmt::format("\\x{:02x}", byte);
    else word += c == '\'' || c == '\\' ? std::string{'\\', c} : std::string(1, c);
  }
  return word + "'";
}

}  // namespace

const std::vector<std::string>& remembered_arguments() { return g_argument_list; }

void remember_arguments(const std::vector<std::string>& arguments) {
  g_argument_list = arguments;
  for (const std::string& argument : arguments) g_arguments += (g_arguments.empty() ? "" : " ") + shell_word(argument);
}

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

Record new_record(const std::string& command) {
  Record record;
  record.command = command;
  record.arguments = g_arguments;
  record.version = version_text();
  record.started = utc_now();
  return record;
}

void add_output_flags(CLI::App& app, OutputFlags& flags) {
  flags.command = app.get_name();
  const OutputOffer& offer = output_offer(flags.command);
  app.add_option("-o,--output", flags.format, output_text(offer))->type_name("F")->group("Output");
  app.add_option("--save", flags.save, save_text(offer))->allow_extra_args(false)->type_name("FILE")->group("Output");
  app.add_flag("--ops", flags.ops, "per-op tables (csv: one row per op)")->group("Output");
  app.add_flag("-q,--quiet", flags.quiet, "no progress, no notes on stderr")->group("Output");
  app.add_flag("-v,--verbose", flags.verbose, "explain columns, show more")->group("Output");
  app.add_option("--width", flags.width, "columns of the table [terminal]")->type_name("N")->group("Output");
  app.add_option("--color", flags.color, "auto, always or never [auto]")->type_name("W")->group("Output");
}

void add_columns_flag(CLI::App& app, OutputFlags& flags) {
  app.add_option("--columns", flags.columns, "columns of tables and csv, such as path,measured_s,p95_s (fathom list columns), or all [md, html: those read most; csv: all]")->allow_extra_args(false)->type_name("C,...")->group("Output");
}

void check_output_flags(const OutputFlags& flags) {
  asked_columns(flags);
  const OutputOffer& offer = output_offer(flags.command);
  check_format(offer, flags.format);
  if (flags.color != "auto" && flags.color != "always" && flags.color != "never")
    throw_input(fmt::format("--color is auto, always or never, not '{}'", flags.color));
  if (flags.width != 0 && flags.width < 20) throw_input("--width is at least 20");
  for (const std::string& path : flags.save) check_save(offer, path);
}

bool begin_document(const Document& start, const OutputFlags& flags, const OtherForms& forms) {
  const std::string text = render_form(start, start, flags.format, false, flags, forms);
  g_begun = text.substr(0, text.find('\n') + 1);
  return write_stream(STDOUT_FILENO, g_begun) == StreamStatus::kDone;
}

int emit_document(const Document& document, const OutputFlags& flags, const OtherForms& forms) {
  if (flags.ops && !forms.ops && !flags.quiet) tell("fathom: --ops changes nothing here: this result has tables of its own\n");
  const Document page = forms.asked.empty() ? document : as_page(document, forms);
  const auto rendered = [&](const std::string& format, bool file) { return render_form(document, page, format, file, flags, forms); };
  for (const std::string& path : flags.save) save_one(path, flags.quiet, [&] { return page; }, [&](const std::string& format) { return rendered(format, true); });
  const std::string text = rendered(flags.format, false);
  // What begin_document() has written is not written twice.
  const std::size_t begun = text.compare(0, g_begun.size(), g_begun) == 0 ? g_begun.size() : 0;
  write_stream(STDOUT_FILENO, std::string_view(text).substr(begun));
  return 0;
}

int emit(const Record& record, const OutputFlags& flags) {
  // A page shows its notes; what programs read goes on, and the notes are said beside it.
  if (!flags.quiet && (flags.format == "csv" || flags.format == "json"))
    for (const RecordNote& note : record.notes) fmt::print(stderr, "fathom: {}\n", printable(note.text));
  for (const std::string& path : flags.save)
    save_one(path, flags.quiet, [&] { return view_record(record, view_options(flags, format_of_file(path), true)); }, [&](const std::string& format) { return render(record, format, flags, true); });
  write_stream(STDOUT_FILENO, render(record, flags.format, flags, false));  // a closed pipe is the reader's wish, not an error
  return 0;
}

Progress::Progress(bool quiet) : on_(!quiet && isatty(STDERR_FILENO) != 0 && !terminal_is_plain()) {}

void Progress::show(const std::string& text, double share, double elapsed) {
  if (!on_ || (shown_ && elapsed - last_ < 0.2)) return;
  last_ = elapsed;
  shown_ = true;
  const double left = share > 0.02 ? elapsed / share - elapsed : -1;
  // Past the time that was planned, the least number of rounds still has to end.
  const std::string eta = share >= 1 ? ", last rounds" : left >= 0 ? fmt::format(", {:.0f} s left", left) : "";
  // A line that wraps could not be rewritten in place: the text gives way to its end.
  const std::string end = fmt::format(" {:3.0f} %{}", share * 100, eta);
  fmt::print(stderr, "\r\033[K{}{}", clip_middle(printable(text), std::max(1, terminal_width(STDERR_FILENO) - 1 - display_width(end))), end);
  std::fflush(stderr);
}

void Progress::clear() {
  if (!on_ || !shown_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace fathom
