// Versions of a durable store as a receiver takes them: what is served, and what of the store a rank reads for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/store/store_writer.h"
#include "src/tensor/manifest/manifest_entry.h"
#include "tests/support/error_of.h"
#include "tests/support/reload/receiver_rig.h"
#include "tests/support/temp_folder.h"

namespace layercast {
namespace {

using ::testing::AllOf;
using testing::Differences;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ReceiverRig;
using testing::RigOptions;
using testing::ServedBytes;

class StoreSourceTest : public ::testing::Test {
 protected:
  Version Store(const testing::Weights& weights, std::uint64_t step) {
    WorkerPool pool(1);
    std::vector<ManifestEntry> entries;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      entries.push_back(EntryOf(weights.spec(i).name, weights.at(i).tensor, pool));
    }
    StoreWriter writer(StoreFolder::Make(root_, failpoints_), {}, failpoints_);
    const VersionRecord record{
        .manifest = Manifest("run", step, std::move(entries)), .run = {}, .config = {}, .published_ms = step};
    writer.Write(record, [&](std::uint32_t tensor) { return std::span<const std::byte>(weights.bytes(tensor)); });
    return record.manifest.version();
  }

  // Changes a byte of a stored tensor.
  void Spoil(const testing::Weights& weights, const std::string& name, std::size_t at) const {
    const Digest digest = DigestOf(weights.bytes(testing::IndexOf(weights, name)));
    std::fstream file(StoreFolder::Open(root_).Object(digest), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const auto byte = static_cast<char>(file.get() ^ 1);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(byte);
  }

  TempFolder folder_;
  const std::filesystem::path root_ = folder_ / "store";
  FailPoints failpoints_;
};

TEST_F(StoreSourceTest, GivesEachRankWhatAColdLoadWouldServe) {
  for (const char* recipe : {"none", "fp8_per_channel", "fp8_per_block", "fp8_per_tensor"}) {
    for (const int rank : {0, 1}) {
      for (const bool direct : {false, true}) {
        ReceiverRig rig({.recipe = recipe, .parallel = {.tp_rank = rank, .tp_size = 2}}, direct);
        const auto weights = rig.Version(7);
        const Version stored = Store(weights, 7);
        rig.receiver->ReloadWeights(FromStore(root_));
        EXPECT_EQ(rig.receiver->version(), stored);
        EXPECT_EQ(rig.receiver->report().channel, "store");
        EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(weights)), IsEmpty()) << recipe << ", rank " << rank;
      }
    }
  }
}

TEST_F(StoreSourceTest, TakesTheVersionThatIsNamed) {
  ReceiverRig rig;
  const Version first = Store(rig.Version(1), 1);
  const Version second = Store(rig.Version(2), 2);
  rig.receiver->ReloadWeights(FromStore(root_, "run"));
  EXPECT_EQ(rig.receiver->version(), second);
  rig.receiver->ReloadWeights(FromStore(root_, "run", 1));
  EXPECT_EQ(rig.receiver->version(), first);
  rig.receiver->ReloadWeights(FromStore(root_, "", std::nullopt, second.digest));
  EXPECT_EQ(rig.receiver->version(), second);
  EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(FromStore(root_, "run", 3)); }, ErrorCode::kNotFound),
              AllOf(HasSubstr("at step 3"), HasSubstr(first.ToString())));
  EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(FromStore(folder_ / "none")); }, ErrorCode::kNotFound),
              HasSubstr("is no store"));
  EXPECT_EQ(rig.receiver->version(), second);
}

TEST_F(StoreSourceTest, ReadsOnlyTheLeavesThatTheRankNeeds) {
  const RigOptions first{.recipe = "none", .parallel = {.tp_rank = 0, .tp_size = 2}};
  ReceiverRig rig(first);
  const auto weights = rig.Version(3);
  Store(weights, 3);
  const std::string rows = "model.layers.0.mlp.gate_proj.weight";  // of which rank 1 has the second half
  const std::size_t bytes = weights.bytes(testing::IndexOf(weights, rows)).size();
  Spoil(weights, rows, bytes - 1);
  rig.receiver->ReloadWeights(FromStore(root_));
  const ServedBytes served = rig.engine.Served();
  EXPECT_THAT(Differences(served, rig.Expected(weights)), IsEmpty());
  ReceiverRig other({.recipe = "none", .parallel = {.tp_rank = 1, .tp_size = 2}});
  EXPECT_THAT(ErrorOf([&] { other.receiver->ReloadWeights(FromStore(root_)); }, ErrorCode::kCorrupt),
              HasSubstr("are not those that were stored"));
  Spoil(weights, rows, 0);
  EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(FromStore(root_)); }, ErrorCode::kCorrupt),
              HasSubstr("its bytes from 0 on"));
  EXPECT_THAT(Differences(rig.engine.Served(), served), IsEmpty());  // the old version is served on
}

TEST_F(StoreSourceTest, HoldsALeaseWhileTheVersionIsRead) {
  ReceiverRig rig({.recipe = "none"});
  const auto weights = rig.Version(3);
  Store(weights, 3);
  const VersionStore store(StoreFolder::Open(root_));
  std::size_t leases = 0;
  rig.on_progress = [&](const ReloadProgress&) {
    const std::size_t now = StoreFolder::NamesIn(store.folder().leases()).size();
    leases = std::max(leases, now);
    if (now == 0 || store.List().empty()) return;
    store.Evict(store.Find("run", 3).name);
    Sweep(store, std::chrono::seconds(0));
  };
  rig.receiver->ReloadWeights(FromStore(root_));
  EXPECT_EQ(leases, 1);
  EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(weights)), IsEmpty());
  EXPECT_THAT(StoreFolder::NamesIn(store.folder().leases()), IsEmpty());
  EXPECT_THAT(store.List(), IsEmpty());
}

}  // namespace
}  // namespace layercast
