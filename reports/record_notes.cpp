#include "reports/record_notes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "reports/record_names.hpp"

namespace fathom {
namespace {

bool digit(char c) { return c >= '0' && c <= '9'; }

// A text and the numbers in it: "took {} of {} passes". Digits behind a letter, a dash or an underscore belong to a name.
struct Pattern {
  std::vector<std::string> words;    // one more than numbers
  std::vector<std::string> numbers;
};

Pattern pattern_of(const std::string& text) {
  Pattern pattern;
  std::string word;
  for (std::size_t at = 0; at < text.size();) {
    const char before = at > 0 ? text[at - 1] : ' ';
    const bool starts = digit(text[at]) && (before == ' ' || before == '(' || before == '|' || before == '+');
    std::size_t end = at;
    while (starts && end < text.size() && (digit(text[end]) || ((text[end] == '.' || text[end] == ',') && end + 1 < text.size() && digit(text[end + 1])))) ++end;
    if (end == at) {
      word += text[at++];
      continue;
    }
    pattern.words.push_back(std::move(word));
    word.clear();
    pattern.numbers.push_back(text.substr(at, end - at));
    at = end;
  }
  pattern.words.push_back(std::move(word));
  return pattern;
}

double number_of(std::string text) {
  std::erase(text, ',');
  return std::strtod(text.c_str(), nullptr);
}

struct Told {
  Note::Severity severity;
  std::string text;
  Results of;
};

// "3.1 to 8.4" where the texts have several numbers.
std::string with_ranges(const std::vector<const Told*>& alike) {
  Pattern low = pattern_of(alike.front()->text), high = low;
  for (const Told* each : alike) {
    const Pattern own = pattern_of(each->text);
    for (std::size_t n = 0; n < own.numbers.size(); ++n) {
      if (number_of(own.numbers[n]) < number_of(low.numbers[n])) low.numbers[n] = own.numbers[n];
      if (number_of(own.numbers[n]) > number_of(high.numbers[n])) high.numbers[n] = own.numbers[n];
    }
  }
  std::string text = low.words.front();
  for (std::size_t n = 0; n < low.numbers.size(); ++n) text += (low.numbers[n] == high.numbers[n] ? low.numbers[n] : low.numbers[n] + " to " + high.numbers[n]) + low.words[n + 1];
  return text;
}

}  // namespace

std::vector<RecordNote> notes_of_results(const Record& record) {
  std::vector<Told> told;
  for (const Result& result : record.results)
    for (const RecordNote& note : result.notes) {
      // Records of earlier versions name the model in the note.
      const std::string text = note.text.starts_with(result.model + ": ") ? note.text.substr(result.model.size() + 2) : note.text;
      const auto same = std::find_if(told.begin(), told.end(), [&](const Told& each) { return each.severity == note.severity && each.text == text; });
      if (same == told.end()) told.push_back({note.severity, text, {&result}});
      else if (same->of.back() != &result) same->of.push_back(&result);
    }
  const Results all = all_results(record);
  std::vector<RecordNote> notes;
  std::vector<bool> done(told.size(), false);
  for (std::size_t i = 0; i < told.size(); ++i) {
    if (done[i]) continue;
    std::vector<const Told*> alike;
    std::vector<std::size_t> places;
    const std::vector<std::string> words = pattern_of(told[i].text).words;
    for (std::size_t k = i; k < told.size(); ++k)
      if (!done[k] && told[k].severity == told[i].severity && pattern_of(told[k].text).words == words) alike.push_back(&told[k]), places.push_back(k);
    const bool many = alike.size() > kMostAlike;
    Told one = told[i];
    if (many) {
      one.text = with_ranges(alike);
      one.of.clear();
      for (const Told* each : alike)
        for (const Result* of : each->of)
          if (std::find(one.of.begin(), one.of.end(), of) == one.of.end()) one.of.push_back(of);
      for (const std::size_t place : places) done[place] = true;
    }
    notes.push_back({one.severity, all.size() == 1 ? one.text : fmt::format("{}: {}", names_of(one.of, all), one.text)});
  }
  return notes;
}

}  // namespace fathom
