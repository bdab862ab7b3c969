#include "engine_side/reload/layout/export_label.h"

#include <charconv>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine_side/reload/layout/layer_recipes.h"
#include "layercast/error.h"
#include "src/base/utf8.h"
#include "src/checkpoint/safetensors/safetensors_file.h"
#include "src/tensor/manifest/manifest.h"

namespace layercast {
namespace {

constexpr const char* kLineageKey = "lineage";
constexpr const char* kStepKey = "step";
constexpr const char* kDigestKey = "digest";
constexpr const char* kServedDigestKey = "served_digest";
constexpr const char* kQuantizationKey = "quantization";
constexpr const char* kExpertPlacementKey = "expert_placement";

[[noreturn]] void Refuse(ErrorCode code, const std::filesystem::path& file, const std::string& what,
                         const std::string& expected, const std::string& got) {
  throw Error(code, file.string() + ": " + what + ": expected " + expected + ", got " + got);
}

// The fields that CheckRank compares, in this order.
std::vector<std::pair<std::string, std::string>> FieldsOf(const ParallelConfig& parallel, std::string_view recipe) {
  return {{"tp_size", std::to_string(parallel.tp_size)},
          {"pp_size", std::to_string(parallel.pp_size)},
          {"ep_size", std::to_string(parallel.ep_size)},
          {kExpertPlacementKey, std::string(ExpertPlacementName(parallel.expert_placement))},
          {"rank", std::to_string(parallel.engine_rank())},
          {kQuantizationKey, std::string(recipe)}};
}

const std::string* Find(const ExportLabel::Metadata& said, const std::string& key) {
  const auto found = said.find(key);
  return found == said.end() ? nullptr : &found->second;
}

// The digest that `text` spells. None if `text` is null, which means that the field is not there.
std::optional<Digest> DigestFrom(const std::filesystem::path& file, const char* key, const std::string* text) {
  if (text == nullptr) return std::nullopt;
  const std::optional<Digest> digest = Digest::FromHex(*text);
  if (!digest) Refuse(ErrorCode::kCorrupt, file, key, "32 hexadecimal digits", Quote(*text));
  return digest;
}

std::uint64_t StepFrom(const std::filesystem::path& file, const std::string& text) {
  std::uint64_t step = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, step);
  if (error != std::errc() || stop != end) Refuse(ErrorCode::kCorrupt, file, kStepKey, "a number", Quote(text));
  return step;
}

// The version that the file names. None if it says nothing of a version.
std::optional<Version> VersionFrom(const std::filesystem::path& file, const ExportLabel::Metadata& said) {
  const std::string* const lineage = Find(said, kLineageKey);
  const std::string* const step = Find(said, kStepKey);
  const std::optional<Digest> digest = DigestFrom(file, kDigestKey, Find(said, kDigestKey));
  if (lineage == nullptr && step == nullptr && !digest) return std::nullopt;
  if (lineage == nullptr || step == nullptr || !digest) {
    Refuse(ErrorCode::kCorrupt, file, "metadata", "lineage, step and digest, or none of them", "some of them");
  }
  Version version = Manifest(*lineage, StepFrom(file, *step), {}).version();  // throws if no version can be named so
  version.digest = *digest;
  return version;
}

std::string NameOf(const std::optional<Version>& version) { return version ? version->ToString() : "none"; }

}  // namespace

ExportLabel::Metadata ExportLabel::ToWrite(const Version& version, const ParallelConfig& parallel,
                                           std::string_view recipe, const Digest& served_digest) {
  Metadata metadata = {{kLineageKey, version.lineage},
                       {kStepKey, std::to_string(version.step)},
                       {kDigestKey, version.digest.ToHex()},
                       {kServedDigestKey, served_digest.ToHex()}};
  for (auto& [key, value] : FieldsOf(parallel, recipe)) metadata.emplace(key, std::move(value));
  return metadata;
}

ExportLabel::ExportLabel(std::filesystem::path file)
    : file_(std::move(file)),
      said_(SafetensorsFile(file_).metadata()),
      version_(VersionFrom(file_, said_)),
      served_digest_(DigestFrom(file_, kServedDigestKey, Find(said_, kServedDigestKey))) {}

// Under "checkpoint", the tensors may be the same as under the name of a single recipe, so these two names do not
// conflict; dtypes and shapes show whether the tensors differ.
void ExportLabel::CheckRank(const ParallelConfig& parallel, std::string_view recipe) const {
  const std::string contiguous(ExpertPlacementName(ExpertPlacement::kContiguous));
  for (const auto& [key, expected] : FieldsOf(parallel, recipe)) {
    const std::string* got = Find(said_, key);
    if (key == kExpertPlacementKey) {
      if (parallel.ep_size == 1) continue;    // every rank has some of every expert
      if (got == nullptr) got = &contiguous;  // files that do not say it are from when there was no other
    }
    if (got == nullptr || *got == expected) continue;
    if (key == kQuantizationKey && (*got == LayerRecipes::kAsCheckpoint || expected == LayerRecipes::kAsCheckpoint)) {
      continue;
    }
    Refuse(ErrorCode::kInvalidArgument, file_, key, expected, *got);
  }
}

void ExportLabel::CheckVersion(const ExportLabel& other) const {
  if (version_ == other.version_) return;
  Refuse(ErrorCode::kInvalidArgument, file_, "version",
         NameOf(other.version_) + ", as in " + other.file_.filename().string(), NameOf(version_));
}

void ExportLabel::CheckServedDigest(const Digest& got) const {
  if (!served_digest_ || *served_digest_ == got) return;
  Refuse(ErrorCode::kCorrupt, file_, "digest of the rank's tensors", served_digest_->ToHex(), got.ToHex());
}

}  // namespace layercast
