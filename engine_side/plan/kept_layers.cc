#include "engine_side/plan/kept_layers.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "layercast/error.h"

namespace layercast {
namespace {

constexpr std::size_t kMostTexts = 64;

// A path cut around its first number.
struct NumberedPath {
  std::string_view before;
  std::string_view behind;
  std::uint64_t number = 0;
};

// Cuts the path around its first segment that is a number; nullopt if there is none.
std::optional<NumberedPath> FindNumber(std::string_view path) {
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    NumberedPath cut{path.substr(0, begin), path.substr(end)};
    const char* const last = path.data() + end;
    const auto [read, error] = std::from_chars(path.data() + begin, last, cut.number);
    if (error == std::errc() && read == last) return cut;
    begin = end + 1;
  }
  return std::nullopt;
}

// Writes numbers, which must be in order, as ranges: "0-3,7".
std::string RangesOf(std::span<const std::uint64_t> numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    const std::size_t first = i++;
    while (i < numbers.size() && numbers[i] == numbers[i - 1] + 1) ++i;
    text += (first == 0 ? "" : ",") + std::to_string(numbers[first]);
    if (i - first > 1) text += "-" + std::to_string(numbers[i - 1]);
  }
  return text;
}

struct LikePaths {
  std::string_view before;
  std::string_view behind;
  std::vector<std::uint64_t> numbers;  // empty: this is the single path `before`

  std::string Text() const { return std::string(before) + RangesOf(numbers) + std::string(behind); }
  std::size_t size() const { return std::max<std::size_t>(numbers.size(), 1); }
};

std::vector<LikePaths> Gather(std::span<const std::string_view> paths) {
  std::vector<LikePaths> gathered;
  std::map<std::pair<std::string_view, std::string_view>, std::size_t> places;
  for (const std::string_view path : paths) {
    const std::optional<NumberedPath> cut = FindNumber(path);
    if (!cut) {
      gathered.push_back({path, {}, {}});
      continue;
    }
    const auto [place, is_new] = places.try_emplace({cut->before, cut->behind}, gathered.size());
    if (is_new) gathered.push_back({cut->before, cut->behind, {}});
    gathered[place->second].numbers.push_back(cut->number);
  }
  return gathered;
}

bool IsWithin(std::string_view path, std::string_view module) {
  return path.starts_with(module) && (path.size() == module.size() || path[module.size()] == '.');
}

}  // namespace

std::vector<std::string_view> KeptLayers(const LoadPlan& plan) {
  std::vector<std::string_view> kept;
  for (const PlannedLayer& layer : plan.layers()) {
    if (layer.kept) kept.push_back(layer.path);
  }
  return kept;
}

std::vector<std::string> Condensed(std::span<const std::string_view> paths) {
  std::vector<std::string> texts;
  std::size_t left = paths.size();
  for (const LikePaths& like : Gather(paths)) {
    if (texts.size() == kMostTexts) {
      texts.push_back("and " + std::to_string(left) + " more");
      break;
    }
    texts.push_back(like.Text());
    left -= like.size();
  }
  return texts;
}

std::vector<std::string_view> KeptBeyond(const LoadPlan& plan, std::span<const std::string> may_keep) {
  std::vector<std::string_view> beyond;
  if (may_keep.empty()) return beyond;
  std::ranges::copy_if(KeptLayers(plan), std::back_inserter(beyond), [&](std::string_view path) {
    return std::ranges::none_of(may_keep, [&](std::string_view module) { return IsWithin(path, module); });
  });
  return beyond;
}

void CheckMayKeep(const LoadPlan& plan, std::span<const std::string> may_keep) {
  const std::vector<std::string_view> beyond = KeptBeyond(plan, may_keep);
  if (beyond.empty()) return;
  std::string text;
  for (const std::string& paths : Condensed(beyond)) text += (text.empty() ? "" : ", ") + paths;
  throw Error(ErrorCode::kInvalidArgument, "a partial version: nothing came for " + std::to_string(beyond.size()) +
                                               " layers that are not among those that may be kept: " + text);
}

}  // namespace layercast
