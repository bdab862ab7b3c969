#include "cli/arguments/nearest.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace layercast::cli {
namespace {

// The number of edits between two words: the optimal string alignment distance.
std::size_t EditsBetween(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> edits(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        edits[i][j] = i + j;
        continue;
      }
      const bool same = a[i - 1] == b[j - 1];
      edits[i][j] = std::min({edits[i - 1][j] + 1, edits[i][j - 1] + 1, edits[i - 1][j - 1] + (same ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) edits[i][j] = std::min(edits[i][j], edits[i - 2][j - 2] + 1);
    }
  }
  return edits[a.size()][b.size()];
}

std::size_t Letters(std::string_view word) { return word.size() - std::min(word.find_first_not_of('-'), word.size()); }

}  // namespace

std::string DidYouMean(std::string_view word, std::span<const std::string> known) {
  constexpr std::size_t kLongest = 100;  // of a word that is compared
  const std::string* nearest = nullptr;
  std::size_t edits_to_nearest = kLongest;
  for (const std::string& candidate : known) {
    const std::size_t letters = std::max(Letters(word), Letters(candidate));
    if (letters > kLongest) continue;
    const std::size_t edits = EditsBetween(word, candidate);
    if (edits * 3 > letters || edits >= edits_to_nearest) continue;
    nearest = &candidate;
    edits_to_nearest = edits;
  }
  return nearest == nullptr ? "" : ": did you mean '" + *nearest + "'?";
}

}  // namespace layercast::cli
