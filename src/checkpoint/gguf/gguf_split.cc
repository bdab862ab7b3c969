#include "src/checkpoint/gguf/gguf_split.h"

#include <array>
#include <cinttypes>
#include <cstdio>
#include <system_error>

#include "layercast/error.h"
#include "src/base/utf8.h"
#include "src/checkpoint/mapped_file.h"

namespace layercast {
namespace {

constexpr char kTensors[] = "split.tensors.count";

std::uint64_t NumberOr0(const GgufHeader& header, const std::string& key) {
  const auto found = header.numbers.find(key);
  return found == header.numbers.end() ? 0 : found->second;
}

}  // namespace

std::optional<GgufSplit> GgufSplit::Of(const std::filesystem::path& file, const GgufHeader& header,
                                       const std::string& subject) {
  const std::uint64_t count = NumberOr0(header, "split.count");
  if (count < 2) return std::nullopt;  // 0 if parts were merged again
  GgufSplit split(NumberOr0(header, "split.no"), count);
  if (split.number_ >= count) {
    throw Error(ErrorCode::kCorrupt, subject + ": split.no: expected a number below the " + std::to_string(count) +
                                         " parts, got " + std::to_string(split.number_));
  }
  const std::string ending = split.Ending(split.number_);
  if (!file.native().ends_with(ending)) {
    throw Error(ErrorCode::kCorrupt, subject + ": part " + std::to_string(split.number_ + 1) + " of " +
                                         std::to_string(count) + ": expected a name that ends in " + ending);
  }
  split.stem_ = file.native().substr(0, file.native().size() - ending.size());
  return split;
}

void GgufSplit::CheckComplete(const GgufHeader& header, const std::string& subject) const {
  CheckAllThere(subject);
  if (!header.keys.contains(kTensors)) return;
  const std::uint64_t expected = header.Number(kTensors, subject);
  const std::uint64_t got = CountTensors();
  if (got == expected) return;
  throw Error(ErrorCode::kCorrupt, subject + ": " + kTensors + ": expected " + std::to_string(expected) +
                                       " tensors in the " + std::to_string(count_) + " parts, got " +
                                       std::to_string(got));
}

std::uint64_t GgufSplit::CountTensors() const {
  std::uint64_t tensors = 0;
  for (std::uint64_t number = 0; number < count_; ++number) {
    const MappedFile file(Part(number));
    tensors += CountGgufTensors(file.bytes(), Quote(Part(number).native()));
  }
  return tensors;
}

// The first missing part ends the check, so an absurd count costs no more than the files that there are.
void GgufSplit::CheckAllThere(const std::string& subject) const {
  for (std::uint64_t number = 0; number < count_; ++number) {
    std::error_code ignored;
    if (std::filesystem::exists(Part(number), ignored)) continue;
    throw Error(ErrorCode::kNotFound, subject + ": split.count: expected " + std::to_string(count_) +
                                          " files, got none called " + Quote(Part(number).filename().native()));
  }
}

std::string GgufSplit::Ending(std::uint64_t number) const {
  std::array<char, 64> ending;
  std::snprintf(ending.data(), ending.size(), "-%05" PRIu64 "-of-%05" PRIu64 ".gguf", number + 1, count_);
  return ending.data();
}

}  // namespace layercast
