#include "src/checkpoint/shard_names.h"

#include <charconv>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

namespace layercast {
namespace {

constexpr std::size_t kNumberDigits = 5;  // names contain "-%05d-of-%05d"
constexpr std::string_view kOf = "-of-";
constexpr std::size_t kNumbers = 1 + kNumberDigits + kOf.size() + kNumberDigits;

struct ShardSet {
  std::string stem;    // "model"
  std::string ending;  // ".safetensors"
  int count = 0;

  auto operator<=>(const ShardSet&) const = default;
};

std::optional<int> ReadDigits(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

std::optional<std::pair<ShardSet, int>> ReadShardName(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == name.npos || dot < kNumbers) return std::nullopt;
  const std::string_view numbers = name.substr(dot - kNumbers, kNumbers);
  if (numbers.front() != '-' || numbers.substr(1 + kNumberDigits, kOf.size()) != kOf) return std::nullopt;
  const auto number = ReadDigits(numbers.substr(1, kNumberDigits));
  const auto count = ReadDigits(numbers.substr(kNumbers - kNumberDigits));
  if (!number || !count) return std::nullopt;
  return {{{std::string(name.substr(0, dot - kNumbers)), std::string(name.substr(dot)), *count}, *number}};
}

std::string Padded(int number) {
  const std::string digits = std::to_string(number);
  return std::string(kNumberDigits - digits.size(), '0') + digits;
}

}  // namespace

std::vector<std::string> MissingShards(const std::vector<std::string>& names) {
  std::map<ShardSet, std::set<int>> sets;
  for (const std::string& name : names) {
    if (const auto shard = ReadShardName(name)) sets[shard->first].insert(shard->second);
  }
  std::vector<std::string> missing;
  for (const auto& [set, there] : sets) {
    const int first = there.contains(0) ? 0 : 1;  // most count from 1
    for (int number = first; number < first + set.count; ++number) {
      if (there.contains(number)) continue;
      missing.push_back(set.stem + "-" + Padded(number) + std::string(kOf) + Padded(set.count) + set.ending);
    }
  }
  return missing;
}

}  // namespace layercast
