// Streams on their way into a store.
#include "trainer_side/durable/stored_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/digest/digest.h"
#include "src/store/stored_object.h"
#include "src/tensor/manifest/manifest_entry.h"
#include "tests/support/temp_folder.h"
#include "trainer_side/durable/durable_versions.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const Deadline kInTime = Deadline::After(std::chrono::seconds(60));

class NoDevice final : public DeviceBytes {
 public:
  void ToHost(const Device&, const std::byte*, std::size_t, std::byte*) override {}
  std::vector<float> AmaxOver(const Device&, const TensorSpec&, const std::byte*, KeptAxes) override { return {}; }
  std::vector<Digest> DigestsOf(const Device&, std::span<const std::vector<RegionView>>) override { return {}; }
};

class StoredStreamTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kTensors = 3;

  std::shared_ptr<DurableVersions> Durable() {
    return std::make_shared<DurableVersions>(StoreOptions{.path = root_}, device_, failpoints_);
  }
  static std::vector<float> Values(std::size_t tensor) {
    return std::vector<float>(5000, -static_cast<float>(tensor + 1));
  }
  // The first `most` tensors, from the last to the first.
  std::unique_ptr<WeightsIterator> Walk(std::size_t most = kTensors) {
    return MakeWeightsIterator([this, most, next = kTensors]() mutable -> std::optional<NamedTensor> {
      if (next == kTensors - most) return std::nullopt;
      const std::vector<float>& values = values_[--next];
      return NamedTensor{"t" + std::to_string(next),
                         {.dtype = DType::kF32,
                          .shape = {static_cast<std::int64_t>(values.size())},
                          .data = reinterpret_cast<const std::byte*>(values.data())}};
    });
  }
  static std::size_t WalkAll(std::unique_ptr<WeightsIterator> walk) {
    std::size_t count = 0;
    while (walk->Next()) ++count;
    return count;
  }
  static Manifest ManifestAt(std::uint64_t step) {
    std::vector<TensorSpec> specs;
    for (std::size_t i = 0; i < kTensors; ++i) specs.push_back({"t" + std::to_string(i), DType::kF32, {5000}});
    return Manifest::OfSpecs("run", step, specs);
  }
  // A stream as a publisher makes it.
  struct Published {
    std::shared_ptr<StoredStream> stream;
    std::shared_ptr<OfferedVersion> version;
  };
  Published Publish(DurableVersions& durable, std::uint64_t step) {
    Published published{.stream = durable.Stream(ManifestAt(step), {.run = "job", .config = "{}"}, pool_),
                        .version = {}};
    published.version = std::make_shared<OfferedVersion>(
        ManifestAt(step), [this](std::span<const std::string>) { return Walk(); }, /*layer_order=*/false);
    durable.Await(published.version, published.stream.get());
    return published;
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
  const std::vector<std::vector<float>> values_{Values(0), Values(1), Values(2)};
  NoDevice device_;
  FailPoints failpoints_;
  WorkerPool pool_{1};
};

TEST_F(StoredStreamTest, IsInTheStoreOnceAWalkHasBeenWhole) {
  const auto durable = Durable();
  const Published published = Publish(*durable, 1);
  EXPECT_EQ(durable->Of(*published.version), Durability::kWaiting);
  EXPECT_EQ(WalkAll(published.stream->Through(Walk())), kTensors);
  EXPECT_TRUE(durable->Wait(*published.version, kInTime));
  const StoredVersion stored = durable->store().Find("run", 1);
  EXPECT_EQ(stored.record.run, "job");
  EXPECT_EQ(stored.record.config, "{}");
  for (std::uint32_t tensor = 0; tensor < kTensors; ++tensor) {
    const auto entry = stored.record.manifest.entry(tensor);
    EXPECT_EQ(entry.digest, DigestOf(std::as_bytes(std::span(values_[tensor]))));
    EXPECT_EQ(entry.amax, static_cast<float>(tensor + 1));
    StoredObject object(durable->store().folder().Object(entry.digest), entry.digest, 20000);
    object.CheckAll(pool_);
  }
}

TEST_F(StoredStreamTest, IsWrittenByTheNextWalkIfTheFirstEndsTooSoon) {
  const auto durable = Durable();
  const Published published = Publish(*durable, 1);
  EXPECT_EQ(WalkAll(published.stream->Through(Walk(2))), 2U);
  {
    const auto given_up = published.stream->Through(Walk());
    EXPECT_TRUE(given_up->Next());
    EXPECT_EQ(WalkAll(published.stream->Through(Walk())), kTensors) << "beside it: of another engine";
  }
  EXPECT_EQ(durable->Of(*published.version), Durability::kWaiting);
  EXPECT_THAT(Steps(), IsEmpty());
  EXPECT_EQ(WalkAll(published.stream->Through(Walk())), kTensors);
  EXPECT_TRUE(durable->Wait(*published.version, kInTime));
  EXPECT_THAT(Steps(), ElementsAre(1));
  EXPECT_EQ(WalkAll(published.stream->Through(Walk())), kTensors) << "which finds it there";
}

TEST_F(StoredStreamTest, GoesOnWhileTheStoreCannotBeWritten) {
  const auto durable = Durable();
  const Published published = Publish(*durable, 1);
  std::filesystem::rename(root_ / "tmp", root_ / "elsewhere");
  EXPECT_EQ(WalkAll(published.stream->Through(Walk())), kTensors);
  std::filesystem::rename(root_ / "elsewhere", root_ / "tmp");
  EXPECT_THAT(Steps(), IsEmpty());
  EXPECT_EQ(WalkAll(published.stream->Through(Walk())), kTensors);
  EXPECT_TRUE(durable->Wait(*published.version, kInTime));
}

TEST_F(StoredStreamTest, IsLeftOutIfNobodyHasWalkedIt) {
  auto durable = Durable();
  const Published published = Publish(*durable, 1);
  durable->End();
  EXPECT_EQ(durable->Of(*published.version), Durability::kLeftOut);
  EXPECT_FALSE(durable->Wait(*published.version, kInTime));
  EXPECT_EQ(WalkAll(published.stream->Through(Walk())), kTensors) << "too late";
  durable.reset();
  EXPECT_EQ(WalkAll(published.stream->Through(Walk())), kTensors);
  EXPECT_THAT(Steps(), IsEmpty());
}

TEST_F(StoredStreamTest, IsWholeOrNotThereWhereverItsPublisherIsKilled) {
  int killed = 0;
  for (bool done = false; !done; ++killed) {
    std::filesystem::remove_all(root_);
    static_cast<void>(StoreFolder::Make(root_, failpoints_));
    const pid_t child = ::fork();
    if (child == 0) {
      FailPoints failpoints("store.step=kill@" + std::to_string(killed));
      WorkerPool pool(1);
      const auto durable = std::make_shared<DurableVersions>(StoreOptions{.path = root_}, device_, failpoints);
      const auto stream = durable->Stream(ManifestAt(1), {.run = "job"}, pool);
      const auto version = std::make_shared<OfferedVersion>(
          ManifestAt(1), [this](std::span<const std::string>) { return Walk(); }, /*layer_order=*/false);
      durable->Await(version, stream.get());
      WalkAll(stream->Through(Walk()));
      ::_exit(durable->Wait(*version, kInTime) ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    done = WIFEXITED(status);
    EXPECT_TRUE(!done || (WEXITSTATUS(status) == 0 && Steps().size() == 1));
    for (const auto& checked : VersionStore(StoreFolder::Open(root_)).Check(pool_)) {
      EXPECT_THAT(checked.wrong, IsEmpty()) << killed;
    }
    const auto durable = Durable();
    const Published again = Publish(*durable, 2);
    WalkAll(again.stream->Through(Walk()));
    EXPECT_TRUE(durable->Wait(*again.version, kInTime)) << killed;
  }
  EXPECT_GT(killed, 10);
}

}  // namespace
}  // namespace layercast
