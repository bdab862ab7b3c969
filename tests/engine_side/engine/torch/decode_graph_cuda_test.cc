// On a device: what was captured once serves every version that is written into the buffers afterwards.
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine_side/engine/built_in/rope.h"
#include "engine_side/engine/torch/cuda_graph.h"
#include "engine_side/engine/torch/decode_graph.h"
#include "engine_side/engine/torch/tensors/torch_type.h"
#include "engine_side/engine/torch/torch_memory.h"
#include "layercast/error.h"
#include "tests/engine_side/engine/torch/decode_rig.h"
#include "tests/src/device/cuda/a_device.h"

namespace layercast::testing {
namespace {

at::Tensor OnHost(const CapturedBuffer& buffer) {
  return at::from_blob(buffer.address, buffer.shape, *TorchTypeOf(buffer.dtype));
}

// The engine's buffers once more, in device memory.
class DeviceCopy {
 public:
  explicit DeviceCopy(const Engine& engine) : engine_(engine) {
    for (const CapturedBuffer& buffer : engine.Buffers()) tensors_.push_back(OnHost(buffer).to(at::kCUDA));
    Wait();
  }

  // What the engine's buffers hold now, to the same addresses.
  void Update() {
    const std::vector<CapturedBuffer> host = engine_.Buffers();
    for (std::size_t i = 0; i < host.size(); ++i) tensors_[i].copy_(OnHost(host[i]));
    Wait();
  }

  std::vector<CapturedBuffer> Buffers() const {
    std::vector<CapturedBuffer> buffers = engine_.Buffers();
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      buffers[i].address = static_cast<std::byte*>(tensors_[i].data_ptr());
      buffers[i].device = {Device::Kind::kCuda, tensors_[i].get_device()};
    }
    return buffers;
  }

 private:
  static void Wait() { c10::cuda::getCurrentCUDAStream().synchronize(); }

  const Engine& engine_;
  std::vector<at::Tensor> tensors_;
};

struct Captured {
  const char* recipe;
  DecodeRig::Model model = DecodeRig::Model::kDense;
};

class CapturedDecodeGraph : public ::testing::TestWithParam<Captured> {};

TEST_P(CapturedDecodeGraph, ServesNewWeightsByReplayAlone) {
  LAYERCAST_NEEDS_CUDA();
  DecodeRig rig(GetParam().recipe, "float32", GetParam().model);
  rig.Reload(1);
  DeviceCopy device(rig.engine());
  const std::vector<CapturedBuffer> buffers = device.Buffers();
  DecodeGraph graph(rig.tree(), {}, buffers, MakeRope, DecodeRig::shape());
  DecodeGraph eager(rig.tree(), {}, buffers, MakeRope, DecodeRig::shape(), DecodeGraph::Mode::kEager);
  const std::uint64_t captured = graph.times_queued();
  EXPECT_GT(captured, 0U);

  std::vector<float> before = rig.DecoderLogits();  // of version 1
  for (const std::uint64_t seed : {2, 3, 4}) {
    SCOPED_TRACE("version " + std::to_string(seed));
    rig.Reload(seed);
    device.Update();
    const std::vector<float> replayed = GraphLogits(graph);
    EXPECT_LT(RelativeDifference(replayed, GraphLogits(eager)), 1e-6F);
    EXPECT_LT(RelativeDifference(replayed, rig.DecoderLogits()), 1e-5F);
    EXPECT_GT(RelativeDifference(replayed, before), 0.1F);
    before = replayed;
  }
  EXPECT_EQ(graph.times_queued(), captured);  // no recapture, no step outside the graph
  EXPECT_GT(eager.times_queued(), captured);
  EXPECT_EQ(device.Buffers(), buffers);  // no moved pointer
}

// Slots in device memory that hold what those of the rig do.
class DeviceSlots {
 public:
  DeviceSlots(DecodeRig& rig, int device)
      : rig_(rig.adapters()),
        memory_(OpenTorchMemory({Device::Kind::kCuda, device})),
        slots_({rig_.slots().terms().begin(), rig_.slots().terms().end()}, rig_.slots().sizes(), *memory_, numbers_) {}

  const AdapterSlots& slots() const { return slots_; }
  void Update() {
    for (std::size_t slot = 0; slot < slots_.sizes().slots; ++slot) {
      std::ranges::copy(rig_.slots().Numbers(slot), slots_.Numbers(slot).begin());
      const std::vector<CapturedBuffer> from = rig_.slots().Buffers(slot), to = slots_.Buffers(slot);
      for (std::size_t i = 0; i < to.size(); ++i) {
        at::for_blob(to[i].address, to[i].shape)
            .options(at::TensorOptions(*TorchTypeOf(to[i].dtype)).device(at::kCUDA, to[i].device.index))
            .target_device(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(to[i].device.index)))
            .make_tensor()
            .copy_(OnHost(from[i]));
      }
    }
    c10::cuda::getCurrentCUDAStream().synchronize();
  }

 private:
  const FilledSlots& rig_;
  std::unique_ptr<MemoryResource> memory_;
  HostMemory numbers_;
  AdapterSlots slots_;
};

TEST_P(CapturedDecodeGraph, ComputesWithWhatAdapterSlotsHoldByReplayAlone) {
  LAYERCAST_NEEDS_CUDA();
  DecodeRig rig(GetParam().recipe, "float32", GetParam().model);
  rig.Reload(1);
  const DeviceCopy device(rig.engine());
  const std::vector<CapturedBuffer> buffers = device.Buffers();
  DeviceSlots slots(rig, buffers[0].device.index);
  slots.Update();
  DecodeGraph graph(rig.tree(), {}, buffers, MakeRope, DecodeRig::shape(), DecodeGraph::Mode::kReplay, &slots.slots());
  const std::uint64_t captured = graph.times_queued();
  const std::vector<float> base = GraphLogits(graph);
  std::vector<float> before = base;
  for (const std::size_t seed : {1U, 2U, 3U}) {
    SCOPED_TRACE("adapter " + std::to_string(seed));
    rig.adapters().FillWithNaN(0);
    rig.adapters().Fill(1, {.seed = seed, .rank = static_cast<std::int32_t>(2 * seed)});
    rig.adapters().Fill(2, {.seed = seed + 7, .rank = 3});
    slots.Update();
    const std::vector<float> replayed = GraphLogits(graph, {1, -1, 2});
    EXPECT_LT(RelativeDifference(replayed, rig.DecoderLogits({1, -1, 2})), 1e-5F);
    EXPECT_GT(RelativeDifference(replayed, before), 1e-2F);
    before = replayed;
  }
  EXPECT_EQ(GraphLogits(graph), base);
  EXPECT_EQ(graph.times_queued(), captured);
}

TEST(CudaGraph, ThatCouldNotBeRecordedLeavesItsStreamToOthers) {
  LAYERCAST_NEEDS_CUDA();
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  const auto record = [] { CudaGraph([] { throw Error(ErrorCode::kUnavailable, "half of a step"); }); };
  EXPECT_THROW(record(), Error);
  EXPECT_EQ(c10::cuda::currentStreamCaptureStatusMayInitCtx(), c10::cuda::CaptureStatus::None);
  c10::cuda::getCurrentCUDAStream().synchronize();
}

INSTANTIATE_TEST_SUITE_P(Recipes, CapturedDecodeGraph,
                         ::testing::Values(Captured{"none"}, Captured{"fp8_per_tensor"}, Captured{"fp8_per_channel"},
                                           Captured{"fp8_per_block"}, Captured{"none", DecodeRig::Model::kHybrid},
                                           Captured{"fp8_per_channel", DecodeRig::Model::kHybrid}));

}  // namespace
}  // namespace layercast::testing
