// Damaged files as `layered` and `sharded_state` read them: either an error, or what they say.
// Most useful under the address sanitizer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine_side/reload/sources/kernel_files.h"
#include "layercast/error.h"
#include "src/checkpoint/formats/checkpoint.h"
#include "src/checkpoint/safetensors/safetensors_writer.h"
#include "tests/fuzz/damage.h"
#include "tests/support/reload/kernel_load.h"
#include "tests/support/reload/rig.h"
#include "tests/support/temp_folder.h"

namespace layercast {
namespace {

using namespace std::string_view_literals;
using testing::Rig;
using testing::ServedBytes;
using testing::Weights;

constexpr std::string_view kLikely = "{}[],:\"0123456789 \n\0\xff"sv;
constexpr int kRounds = 200;
constexpr std::string_view kParts[] = {"model-rank-0-part-0.safetensors", "model-rank-0-part-1.safetensors"};

// A folder's files, one of which is damaged, taken away or put in another's place at a time.
class DamagedFolder {
 public:
  DamagedFolder(std::uint32_t seed, std::map<std::string, std::string> files)
      : damage_(seed, kLikely), files_(std::move(files)) {
    for (const auto& [name, bytes] : files_) folder_.Write(name, bytes);
  }

  const std::filesystem::path& path() const { return folder_.path(); }

  void DamageAnother() {
    if (!damaged_.empty()) folder_.Write(damaged_, files_.at(damaged_));
    damaged_ = Any();
    const std::size_t kind = damage_.Below(8);
    if (kind == 0) {
      std::filesystem::remove(folder_ / damaged_);
    } else {
      folder_.Write(damaged_, Damaged(kind, files_.at(damaged_)));
    }
  }

  std::size_t Below(std::size_t bound) { return damage_.Below(bound); }

 private:
  static constexpr std::size_t kHeadBytes = 600;  // where the meaning is

  const std::string& Any() {
    return std::next(files_.begin(), static_cast<std::ptrdiff_t>(damage_.Below(files_.size())))->first;
  }

  std::string Damaged(std::size_t kind, const std::string& bytes) {
    if (kind == 1) return bytes.substr(0, damage_.Below(bytes.size()));
    if (kind == 2) return files_.at(Any());
    if (kind == 3) return damage_.Apply(bytes);
    const std::size_t head = std::min(bytes.size(), kHeadBytes);
    return damage_.Apply(bytes.substr(0, head)) + bytes.substr(head);
  }

  TempFolder folder_;
  Damage damage_;
  const std::map<std::string, std::string> files_;
  std::string damaged_;
};

std::string BytesOf(const NamedTensor& named) {
  const auto bytes = static_cast<std::size_t>(named.tensor.num_bytes());
  return bytes == 0 ? "" : std::string(reinterpret_cast<const char*>(named.tensor.data), bytes);
}

// Every tensor of the checkpoint, held for a while: what is let go of meanwhile takes nothing from those that are not.
std::map<std::string, std::string> ReadHolding(const CheckpointSource& source, std::size_t most_held) {
  std::map<std::string, std::string> read;
  std::vector<NamedTensor> held;
  const auto let_go = [&](std::size_t down_to) {
    while (held.size() > down_to) {
      read.emplace(held.front().name, BytesOf(held.front()));
      held.erase(held.begin());
    }
  };
  const auto weights = Checkpoint::Open(source).Weights();
  while (std::optional<NamedTensor> named = weights->Next()) {
    held.push_back(*std::move(named));
    let_go(most_held);
  }
  let_go(0);
  return read;
}

// Nothing: refused.
template <typename Read>
auto ReadOrRefused(const Read& read) -> std::optional<decltype(read())> {
  try {
    return read();
  } catch (const Error& error) {
    EXPECT_GT(std::string_view(error.what()).size(), 20U);
    return std::nullopt;
  }
}

TEST(LayeredFuzz, DamagedFoldersReadAsEveryOtherWayReadsThem) {
  Weights weights;
  for (const char* name : {"a", "b", "c", "d"}) weights.AddRandom({name, DType::kBF16, {3, 5}}, 4);
  std::vector<NamedTensor> tensors;
  for (std::size_t i = 0; i < weights.size(); ++i) tensors.push_back(weights.at(i));
  const TempFolder whole;
  WriteSafetensors(whole / "1", std::span(tensors).first(2));
  WriteSafetensors(whole / "2", std::span(tensors).subspan(2));
  DamagedFolder folder(
      10, {{"m-1.safetensors", whole.Read("1")},
           {"m-2.safetensors", whole.Read("2")},
           {"model.safetensors.index.json", R"({"weight_map":{"a":"m-1.safetensors","b":"m-1.safetensors",)"
                                            R"("c":"m-2.safetensors","d":"m-2.safetensors"}})"}});
  int accepted = 0;
  for (int round = 0; round < kRounds; ++round) {
    folder.DamageAnother();
    const std::string path = folder.path().native();
    const std::size_t most_held = folder.Below(4);
    const auto layered =
        ReadOrRefused([&] { return ReadHolding({.path = path, .load_format = "layered"}, most_held); });
    const auto plain = ReadOrRefused([&] { return ReadHolding({.path = path}, tensors.size()); });
    ASSERT_EQ(layered, plain) << "round " << round;
    accepted += layered ? 1 : 0;
    if (HasFailure()) FAIL() << "round " << round;
  }
  EXPECT_GT(accepted, 0);
}

// What was staged, once the files were taken for this engine's.
ServedBytes Staged(Rig& rig, const std::filesystem::path& folder) {
  const KernelFiles files(folder.native(), {}, "none");
  KernelManifest("k", files.specs(), rig.layout);  // throws if they do not fit
  testing::LoadKernelTensors(rig, rig.layout, *rig.recipe, *files.Weights());
  return rig.Staged();
}

ServedBytes WhatTheFilesSay(const std::filesystem::path& folder) {
  ServedBytes said;
  for (const std::string_view part : kParts) {
    const auto weights = Checkpoint::Open(folder / part).Weights();
    while (const std::optional<NamedTensor> named = weights->Next()) {
      const std::string bytes = BytesOf(*named);
      const auto* const begin = reinterpret_cast<const std::byte*>(bytes.data());
      said[named->name].assign(begin, begin + bytes.size());
    }
  }
  return said;
}

TEST(ShardedStateFuzz, DamagedPartsAreStagedAsTheySayOrRefused) {
  Rig rig{{.recipe = "none", .tied = true}};
  Weights kernel;
  for (const KernelTensor& tensor : rig.layout.tensors()) kernel.AddRandom(tensor.spec, 2);
  std::vector<NamedTensor> tensors;
  for (std::size_t i = 0; i < kernel.size(); ++i) tensors.push_back(kernel.at(i));
  const TempFolder whole;
  WriteSafetensors(whole / "0", std::span(tensors).first(5));
  WriteSafetensors(whole / "1", std::span(tensors).subspan(5));
  DamagedFolder folder(11, {{std::string(kParts[0]), whole.Read("0")}, {std::string(kParts[1]), whole.Read("1")}});
  int accepted = 0;
  for (int round = 0; round < kRounds; ++round) {
    folder.DamageAnother();
    const auto staged = ReadOrRefused([&] { return Staged(rig, folder.path()); });
    if (staged) {
      ++accepted;
      EXPECT_EQ(testing::Differences(*staged, WhatTheFilesSay(folder.path())), std::vector<std::string>());
    }
    if (HasFailure()) FAIL() << "round " << round;
  }
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace layercast
