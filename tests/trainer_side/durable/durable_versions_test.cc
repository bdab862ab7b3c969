// The thread that writes a publisher's versions into its store.
#include "trainer_side/durable/durable_versions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "src/base/digest/digest.h"
#include "src/store/stored_object.h"
#include "tests/support/temp_folder.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const Deadline kSoon = Deadline::After(std::chrono::seconds(60));

// A device whose memory is the host's, every byte of which is inverted.
class InvertedDevice final : public DeviceBytes {
 public:
  void ToHost(const Device& /*device*/, const std::byte* from, std::size_t bytes, std::byte* to) override {
    std::transform(from, from + bytes, to, [](std::byte byte) { return ~byte; });
  }
  std::vector<float> AmaxOver(const Device&, const TensorSpec&, const std::byte*, KeptAxes) override { return {}; }
  std::vector<Digest> DigestsOf(const Device&, std::span<const std::vector<RegionView>>) override { return {}; }
};

class DurableVersionsTest : public ::testing::Test {
 protected:
  // A version of one tensor. Its bytes live as long as the test.
  std::shared_ptr<OfferedVersion> VersionAt(std::uint64_t step, const Device& device = {}) {
    bytes_.push_back(std::make_unique<std::vector<std::byte>>(20000, static_cast<std::byte>(step)));
    std::vector<std::byte>& held = *bytes_.back();
    Manifest manifest("run", step, {{.spec = {"a", DType::kU8, {20000}}, .digest = DigestOf(held), .amax = 0}});
    if (device.kind != Device::Kind::kHost) std::ranges::transform(held, held.begin(), [](std::byte b) { return ~b; });
    const Offer offer{.id = step, .tensors = {{held.data(), held.size()}}, .device = device};
    return std::make_shared<OfferedVersion>(std::move(manifest), offer, false, WorkCost{},
                                            Provenance{.run = "job", .config = "{}"});
  }

  std::unique_ptr<DurableVersions> Durable() {
    return std::make_unique<DurableVersions>(StoreOptions{.path = root_}, device_, failpoints_);
  }

  std::vector<std::uint64_t> Steps() const {
    std::vector<std::uint64_t> steps;
    for (const StoredVersion& stored : VersionStore(StoreFolder::Open(root_)).List()) {
      steps.push_back(stored.version().step);
    }
    return steps;
  }

  TempFolder folder_;
  const std::filesystem::path root_ = folder_ / "store";
  InvertedDevice device_;
  FailPoints failpoints_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> bytes_;
};

TEST_F(DurableVersionsTest, AreWrittenWithWhatIsKnownOfThem) {
  const auto durable = Durable();
  const auto version = VersionAt(1);
  durable->Put(version);
  EXPECT_TRUE(durable->Wait(*version, kSoon));
  EXPECT_EQ(durable->Of(*version), Durability::kStored);
  const StoredVersion stored = durable->store().Find("run", 1);
  EXPECT_EQ(stored.version(), version->manifest().version());
  EXPECT_EQ(stored.record.run, "job");
  EXPECT_EQ(stored.record.config, "{}");
  EXPECT_GT(stored.record.published_ms, 0);
}

TEST_F(DurableVersionsTest, AreAllWrittenBeforeTheirThreadEnds) {
  auto durable = Durable();
  for (const std::uint64_t step : {1, 2, 3}) durable->Put(VersionAt(step));
  durable.reset();
  EXPECT_THAT(Steps(), ElementsAre(1, 2, 3));
}

TEST_F(DurableVersionsTest, AreBroughtFromTheirDevice) {
  const auto durable = Durable();
  const auto version = VersionAt(7, {Device::Kind::kCuda, 0});
  durable->Put(version);
  EXPECT_TRUE(durable->Wait(*version, kSoon));  // the bytes have the manifest's digest, or they would be left out
}

TEST_F(DurableVersionsTest, AreLeftOutIfTheyAreEvictedBeforeTheirTurn) {
  const auto durable = Durable();
  const auto version = VersionAt(1);
  version->Retire();
  durable->Put(version);
  EXPECT_FALSE(durable->Wait(*version, kSoon));
  EXPECT_EQ(durable->Of(*version), Durability::kLeftOut);
  EXPECT_THAT(Steps(), IsEmpty());
  EXPECT_TRUE(version->WaitReleased(kSoon));  // nothing holds its memory
}

TEST_F(DurableVersionsTest, AreLeftOutWhileTheStoreCannotBeWritten) {
  const auto durable = Durable();
  const auto version = VersionAt(1);
  std::filesystem::rename(root_ / "tmp", root_ / "elsewhere");
  durable->Put(version);
  EXPECT_FALSE(durable->Wait(*version, kSoon));
  std::filesystem::rename(root_ / "elsewhere", root_ / "tmp");
  const auto next = VersionAt(2);
  durable->Put(next);
  EXPECT_TRUE(durable->Wait(*next, kSoon));
  EXPECT_THAT(Steps(), ElementsAre(2));
}

TEST_F(DurableVersionsTest, OfAPublisherThatWasKilledAreNotWrittenAgain) {
  {
    const auto durable = Durable();
    durable->Put(VersionAt(1));
  }
  const auto durable = Durable();
  const auto same = VersionAt(1);
  durable->NoteStored(same);
  EXPECT_EQ(durable->Of(*same), Durability::kStored);
  EXPECT_TRUE(durable->Wait(*same, kSoon));
}

}  // namespace
}  // namespace layercast
