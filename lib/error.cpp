#include "lib/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace fathom {
namespace {

std::string full_text(const std::string& message, const Where& where, const std::string& hint) {
  std::string text;
  if (!where.file.empty()) text += where.line > 0 ? fmt::format("{}:{}: ", where.file, where.line) : where.file + ": ";
  if (!where.key.empty()) text += fmt::format("{}: ", where.key);
  text += message;
  if (!hint.empty()) text += "\n  hint: " + hint;
  return text;
}

// Insertions, deletions, replacements and swaps of neighbours each cost 1 (optimal string alignment): swapped letters are
// the commonest typo.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before;  // row i - 2
  std::vector<size_t> above(b.size() + 1);
  std::iota(above.begin(), above.end(), size_t{0});
  std::vector<size_t> row(b.size() + 1);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = above;
    above = row;
  }
  return above[b.size()];
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

}  // namespace

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kCondition: return 1;
    case ErrorKind::kUsage: return 2;
    case ErrorKind::kInput: return 3;
    case ErrorKind::kEnvironment: return 4;
    case ErrorKind::kInternal: return 70;
  }
  return 70;
}

Error::Error(ErrorKind kind, const std::string& message, Where where, std::string hint)
    : std::runtime_error(full_text(message, where, hint)),
      kind_(kind),
      message_(message),
      where_(std::move(where)),
      hint_(std::move(hint)) {}

void throw_input(const std::string& message, Where where, std::string hint) {
  throw Error(ErrorKind::kInput, message, std::move(where), std::move(hint));
}

void throw_internal(const std::string& message) { throw Error(ErrorKind::kInternal, message); }

std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.size() > 80) return {};  // a pasted blob is no typo, and the distance is quadratic
  const size_t limit = std::max<size_t>(1, word.size() / 3);
  std::string best;
  size_t best_distance = limit + 1;
  const std::string lower = lower_case(word);  // a name in other case is nearer than any other name: H200 is h200, and not b200
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(lower, lower_case(candidate));
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  // No near one, but names that it is the beginning or the end of: the shortest.
  if (best.empty() && word.size() >= 3)
    for (const std::string& candidate : candidates)
      if ((lower_case(candidate).starts_with(lower) || lower_case(candidate).ends_with(lower)) && (best.empty() || candidate.size() < best.size())) best = candidate;
  return best;
}

std::string name_hint(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string nearest = nearest_name(word, candidates);
  if (!nearest.empty()) return fmt::format("did you mean '{}'?", nearest);
  std::string list;
  for (size_t i = 0; i < candidates.size() && i < 12; ++i) list += (i ? ", " : "") + candidates[i];
  if (candidates.size() > 12) list += ", ...";
  return "known: " + list;
}

}  // namespace fathom
