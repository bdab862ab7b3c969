// A publisher whose tensors lie on a device: they are copied, described and digested there, and go from there to an
// engine's device. Linked with a device that is played, and with a real one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/base/memory/counting_memory.h"
#include "src/tensor/kernels/axis_amax.h"
#include "src/tensor/manifest/manifest_entry.h"
#include "tests/support/device/device_test.h"
#include "tests/support/reload/device_publishing.h"

namespace layercast {
namespace {

using ::testing::AllOf;
using testing::DevicePublisher;
using testing::DeviceRank;
using testing::DeviceRigOptions;
using testing::Differences;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TensorsOnDevice : public testing::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (device_ == nullptr) return;
    publisher_.emplace(*device_, arena_);
  }

  std::string Here() const { return "CUDA device " + std::to_string(device_->device().index); }

  const testing::Weights weights_ = testing::RigWeights({}, 1);
  HostMemory heap_;
  CountingMemory arena_{heap_};
  std::optional<DevicePublisher> publisher_;
};

TEST_F(TensorsOnDevice, AreDescribedAsOnTheHost) {
  WorkerPool pool(1);
  for (const auto& [borrowed, keeps] : {std::pair(false, true), std::pair(true, true), std::pair(false, false)}) {
    std::vector<NamedTensor> tensors = publisher_->Place(weights_);
    tensors.push_back({"empty", {DType::kBF16, {0, 4}, nullptr, device_->device()}, nullptr});
    const Snapshot snapshot = publisher_->Take(tensors, 1, borrowed, keeps);
    EXPECT_EQ(snapshot.device, keeps ? device_->device() : Device{});
    ASSERT_EQ(snapshot.manifest.size(), weights_.size() + 1);
    EXPECT_EQ(snapshot.manifest.entry(static_cast<std::uint32_t>(weights_.size())).amax, 0);
    for (std::uint32_t i = 0; i < weights_.size(); ++i) {
      const ManifestEntry expected = EntryOf(weights_.at(i).name, weights_.at(i).tensor, pool);
      EXPECT_EQ(snapshot.manifest.entry(i).spec, expected.spec);
      EXPECT_EQ(snapshot.manifest.entry(i).digest, expected.digest) << expected.spec.name;
      EXPECT_EQ(snapshot.manifest.entry(i).amax, expected.amax) << expected.spec.name;
    }
  }
}

// The host sees none of them, whichever way the trainer gives them.
TEST_F(TensorsOnDevice, GoToAnEngineOnADevice) {
  std::uint64_t step = 0;
  for (const char* recipe : {"none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block"}) {
    for (const auto& [rank, ranks] : {std::pair(0, 1), std::pair(1, 2)}) {
      SCOPED_TRACE(std::string(recipe) + ", rank " + std::to_string(rank));
      const DeviceRigOptions options{.model = {.recipe = recipe, .parallel = {rank, ranks}}, .chunk_bytes = 20'000};
      CountingMemory host(heap_);
      DeviceRank engine(*device_, options, host);
      for (const bool borrowed : {false, true}) {
        const testing::Weights weights = testing::RigWeights(options.model, static_cast<std::uint32_t>(++step));
        const std::size_t before = arena_.allocations();
        publisher_->Publish(publisher_->Place(weights, borrowed), step, borrowed);
        EXPECT_EQ(arena_.allocations(), before);
        engine.Reload(publisher_->endpoint(), step);
        EXPECT_THAT(Differences(engine.Served(), testing::ServedSlowly(options.model, weights)), IsEmpty());
        EXPECT_TRUE(engine.ServesWhatItStaged());
      }
      EXPECT_EQ(host.allocations(), 0U);
    }
  }
}

// Of what a receiver may ask for, values are all that comes to the host; of fp64, which no kernel reads, the bytes.
TEST_F(TensorsOnDevice, HaveTheMagnitudesByRowAndByColumnThatTheHostFinds) {
  WorkerPool pool(1);
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32, DType::kF64}) {
    for (const auto& [shape, kept] : std::vector<std::pair<Shape, KeptAxes>>{
             {{70, 300}, 0b01}, {{4, 30, 64}, 0b001}, {{4, 30, 64}, 0b011}, {{4, 300, 64}, 0b101}, {{0, 4}, 0b01}}) {
      testing::Weights weights;
      weights.AddRandom({"w", dtype, shape}, 7);
      const TensorSpec spec = weights.spec(0);
      const TensorView there = publisher_->Place(weights).front().tensor;
      const std::size_t before = device_->bytes_brought();
      const std::vector<float> amax = publisher_->tensors().AmaxOver(device_->device(), spec, there.data, kept);
      if (dtype != DType::kF64) {
        EXPECT_EQ(device_->bytes_brought() - before, amax.size() * sizeof(float));
      }
      EXPECT_EQ(amax, AmaxOver(spec, weights.at(0).tensor.data, kept, pool)) << Name(dtype) << ToString(shape);
    }
  }
}

TEST_F(TensorsOnDevice, MayChangeOnceTheyArePublished) {
  const DeviceRigOptions options{};
  DeviceRank engine(*device_, options, heap_);
  const std::vector<NamedTensor> tensors = publisher_->Place(weights_);
  publisher_->Publish(tensors, 1, false);
  for (const NamedTensor& named : tensors) {
    const std::vector<std::byte> other(static_cast<std::size_t>(named.tensor.num_bytes()), std::byte{0x41});
    device_->Carry(AsView(other), const_cast<std::byte*>(named.tensor.data));
  }
  engine.Reload(publisher_->endpoint(), 1);
  EXPECT_THAT(Differences(engine.Served(), testing::ServedSlowly(options.model, weights_)), IsEmpty());
}

TEST_F(TensorsOnDevice, GoThroughTheHostInAStream) {
  const DeviceRigOptions options{};
  DeviceRank engine(*device_, options, heap_);
  publisher_->PublishStream(publisher_->Place(weights_), 1);
  engine.Reload(publisher_->endpoint(), 1);
  EXPECT_THAT(Differences(engine.Served(), testing::ServedSlowly(options.model, weights_)), IsEmpty());
}

TEST_F(TensorsOnDevice, WithAWrongValueAreNamed) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const std::size_t size = dtype == DType::kF32 ? 4 : 8;
    std::vector<std::byte> values(6 * size, std::byte{0});
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const double wide_nan = std::numeric_limits<double>::quiet_NaN();
    std::memcpy(values.data() + 4 * size, size == 4 ? static_cast<const void*>(&nan) : &wide_nan, size);
    std::byte* const there = device_->Allocate(values.size());
    device_->Carry(AsView(values), there);
    const NamedTensor named{"w", {dtype, {2, 3}, there, device_->device()}, nullptr};
    EXPECT_THAT(ErrorOf([&] { publisher_->Take({named}, 1, false, true); }),
                AllOf(HasSubstr("'w' ([2, 3]"), HasSubstr("NaN or infinity at [1, 1]")));
  }
}

TEST_F(TensorsOnDevice, AreRefusedWhereTheyCannotBeBorrowed) {
  std::vector<NamedTensor> tensors = publisher_->Place(weights_);
  EXPECT_THAT(ErrorOf([&] { publisher_->Take(tensors, 1, true, false); }),
              AllOf(HasSubstr(tensors.front().name), HasSubstr("is borrowed on " + Here() + ", where not all")));
  tensors[1] = weights_.at(1);
  EXPECT_THAT(
      ErrorOf([&] { publisher_->Take(tensors, 1, true, true); }),
      AllOf(HasSubstr(tensors[1].name), HasSubstr("in host memory: expected all tensors of the version on CUDA")));
}

TEST_F(TensorsOnDevice, AreRefusedWhereKernelsCannotReadThem) {
  std::vector<NamedTensor> tensors = publisher_->Place(weights_);
  tensors[1].tensor.data += 1;
  EXPECT_THAT(ErrorOf([&] { publisher_->Take(tensors, 1, true, true); }),
              AllOf(HasSubstr(tensors[1].name), HasSubstr("expected an address that is a multiple of")));
}

// As a model that is spread over the GPUs of one process.
TEST_F(TensorsOnDevice, OnSeveralDevicesAreNotCopiedToOne) {
  std::vector<NamedTensor> tensors = publisher_->Place(weights_);
  ++tensors[1].tensor.device.index;
  EXPECT_THAT(ErrorOf([&] { publisher_->Take(tensors, 1, false, true); }),
              AllOf(HasSubstr(tensors[1].name),
                    HasSubstr(": expected all tensors of the version on " + Here() + ", or a channel")));
}

}  // namespace
}  // namespace layercast
