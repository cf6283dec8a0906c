#include "tools/output_offer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "lib/error.hpp"
#include "tools/plot_output.hpp"

namespace fathom {
namespace {

const std::vector<std::string> kPages = {"table", "md", "csv", "json", "html"};
const std::vector<std::string> kFiles = {"md", "csv", "json", "html", "txt"};

// Commands that are not here print pages and save them, without plots.
const std::vector<OutputOffer> kOffers = {
    {"predict", kPages, kFiles, true},
    {"run", kPages, kFiles, true},
    {"compare", kPages, kFiles, true},
    {"trace", kPages, kFiles, true},
    {"report", kPages, kFiles, true},
    {"calibrate", kPages, {"ini", "gpu", "md", "csv", "json", "html", "txt"}},
    {"sweep", {"csv", "jsonl", "table", "md", "json", "html"}, {"csv", "jsonl", "md", "json", "html", "txt"}},  // which of them when: tools/cmd_sweep.cpp
};

bool among(const std::vector<std::string>& words, const std::string& word) { return std::find(words.begin(), words.end(), word) != words.end(); }

// ".md, .csv or .txt"
std::string list_of(const std::vector<std::string>& words, std::string_view before = "") {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) text += fmt::format("{}{}{}", i == 0 ? "" : i + 1 < words.size() ? ", " : " or ", before, words[i]);
  return text;
}

}  // namespace

const OutputOffer& output_offer(const std::string& command) {
  static const OutputOffer kPlain = {"", kPages, kFiles};
  const auto own = std::find_if(kOffers.begin(), kOffers.end(), [&](const OutputOffer& each) { return each.command == command; });
  return own == kOffers.end() ? kPlain : *own;
}

std::string output_text(const OutputOffer& offer) {
  if (offer.command == "sweep") return "rows as csv or jsonl [csv]; the tables of --pareto and --top as table, md, csv, json or html [table]";
  return list_of(offer.formats) + " [table]";
}

std::string save_text(const OutputOffer& offer) {
  if (offer.command == "sweep") return "the rows to FILE.csv or FILE.jsonl; of --pareto and --top also pages: FILE.md, .json, .html, .txt; repeatable";
  if (offer.command == "calibrate") return "the machine file NAME.ini [the cache folder's], of --from-table NAME.gpu; also pages: FILE.md, .csv, .json, .html, .txt; repeatable";
  return fmt::format("also write FILE.{}{}; missing folders are made; repeatable", fmt::join(offer.files, ", ."), offer.plots ? "; plots as .svg, .png, .gp" : "");
}

std::string format_of_file(const std::string& path) {
  std::string extension = std::filesystem::path(path).extension().string();
  if (!extension.empty()) extension.erase(0, 1);
  if (extension == "markdown") extension = "md";
  if (extension == "htm") extension = "html";
  if (extension == "txt") extension = "table";
  if (extension == "ndjson") extension = "jsonl";
  return extension;
}

void check_format(const OutputOffer& offer, const std::string& format) {
  if (among(offer.formats, format)) return;
  const std::string hint = name_hint(format, offer.formats);
  throw_input(fmt::format("unknown output format '{}'", format.substr(0, 80)), {"", 0, "-o"}, hint.starts_with("did you mean") ? hint : list_of(offer.formats));
}

void check_save(const OutputOffer& offer, const std::string& path) {
  const std::string format = format_of_file(path);
  const bool plot = is_plot_format(format);
  if (plot ? offer.plots : among(offer.files, format == "table" ? "txt" : format)) return;
  const std::string what = plot ? "there is no plot here for '{}'" : "cannot tell the format of '{}'";
  throw_input(fmt::format(fmt::runtime(what), path), {"", 0, "--save"},
              fmt::format("end the name in {}{}", list_of(offer.files, "."), offer.plots ? "; in .svg, .png or .gp for the plots" : ""));
}

}  // namespace fathom
