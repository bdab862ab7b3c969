// A receiver over an engine whose buffers are on a device, all of them or but for some layers.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine_side/quant/recipes/recipe_table.h"
#include "engine_side/reload/layout/strided.h"
#include "layercast/receiver.h"
#include "tests/support/device/test_device.h"
#include "tests/support/reload/laid_out.h"
#include "tests/support/reload/receiver_rig.h"

namespace layercast::testing {

struct DeviceRigOptions {
  RigOptions model{};
  CommitPolicy commit = CommitPolicy::kStaged;
  std::uint64_t chunk_bytes = 70'000;
  // Kernel tensors of these names stay in host memory.
  std::function<bool(const std::string& name)> on_host = [](const std::string&) { return false; };
  bool strided = false;  // matrices lie column by column, with gaps
  WeightLayout layout{};
  bool direct = true;
};

// The table of an engine for a model. Resource; the device outlives it.
class DeviceEngine {
 public:
  DeviceEngine(TestDevice& device, const Module& model, const DeviceRigOptions& options) : device_(device) {
    const auto recipe = MakeRecipe(options.model.recipe);
    const std::shared_ptr<ReloadStream> stream = device.Opener()(device.device());
    for (LaidOut& laid : LaidOutBuffers(model, *recipe, options.layout)) {
      CapturedBuffer& buffer = laid.buffer;
      if (options.strided && buffer.shape.size() == 2) buffer.strides = {1, buffer.shape[0] + 3};
      Place(buffer, options.on_host(buffer.name), *stream);
      table_.push_back(buffer);
      laid_.push_back(std::move(laid));
    }
    stream->Wait(stream->Record());
  }

  CapturedBuffers Adopt() const {
    return CapturedBuffers::Adopt(table_, [this] { return table_; }, device_.Opener());
  }
  std::vector<CapturedBuffer>& table() { return table_; }

  // All memory of every buffer, and what it must be while those tensors are served: padding, gaps and all.
  ServedBytes Memory() const {
    ServedBytes memory;
    for (const CapturedBuffer& buffer : table_) {
      const auto bytes = static_cast<std::int64_t>(ExtentBytes(buffer));
      const CapturedBuffer all{buffer.name, buffer.address, DType::kU8, {bytes}, {}, buffer.device};
      memory[buffer.name] = CapturedBuffers::Adopt({all}, nullptr, device_.Opener()).Read(all);
    }
    return memory;
  }
  ServedBytes ExpectedMemory(const ServedBytes& tensors) const {
    ServedBytes memory;
    for (const LaidOut& laid : laid_) {
      const std::string& name = laid.buffer.name;
      memory[name] = laid.Memory(tensors.at(name), ExtentBytes(laid.buffer), kUntouched);
    }
    return memory;
  }

 private:
  static constexpr std::byte kUntouched{0x77};

  void Place(CapturedBuffer& buffer, bool on_host, DeviceStream& stream) {
    const std::size_t bytes = ExtentBytes(buffer);
    if (on_host) {
      buffer.address = host_.emplace_back(std::max<std::size_t>(bytes, 1), kUntouched).data();
    } else {
      buffer.address = device_.Allocate(bytes);
      buffer.device = device_.device();
      stream.Fill(buffer.address, kUntouched, bytes);
    }
  }

  TestDevice& device_;
  std::vector<std::vector<std::byte>> host_;
  std::vector<CapturedBuffer> table_;
  std::vector<LaidOut> laid_;
};

struct DeviceRig {
  DeviceRig(TestDevice& device, const DeviceRigOptions& given)
      : options(given), engine(device, *RigModel(given.model), given) {
    ReceiverOptions receiver_options;
    receiver_options.commit = given.commit;
    receiver_options.direct = given.direct;
    receiver_options.threads = 1;
    receiver_options.chunk_bytes = given.chunk_bytes;
    receiver = std::make_unique<Receiver>(RigModel(given.model), given.model.parallel,
                                          QuantizationConfig{.recipe = given.model.recipe, .layout = given.layout},
                                          engine.Adopt(), receiver_options);
  }

  Weights Version(std::uint32_t seed) const { return RigWeights(options.model, seed); }
  ServedBytes Expected(const Weights& weights) const { return ServedSlowly(options.model, weights); }
  ServedBytes Served() const {
    ServedBytes served;
    for (const CapturedBuffer& buffer : receiver->captured().buffers()) {
      served[buffer.name] = receiver->captured().Read(buffer);
    }
    return served;
  }

  const DeviceRigOptions options;
  DeviceEngine engine;
  std::unique_ptr<Receiver> receiver;
};

}  // namespace layercast::testing
