// Adapters of which every element is its own number, so that where one lands shows where it came from, and a rank's
// slots that take them. Used by the tests of loads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine_side/adapters/adapter_slots.h"
#include "layercast/adapters/adapter_receiver.h"
#include "src/checkpoint/safetensors/safetensors_writer.h"
#include "tests/engine_side/adapters/load/adapter_models.h"
#include "tests/support/temp_folder.h"

namespace layercast::testing {

inline const std::string kPrefix = "base_model.model.model.layers.0.";

// A PEFT folder whose tensors are numbered through, in the order in which they are added.
class AdapterOnDisk {
 public:
  explicit AdapterOnDisk(std::string config = R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4})")
      : config_(std::move(config)) {}

  void Add(const std::string& name, const Shape& shape, float scale = 1.0F) {
    std::vector<float> values(static_cast<std::size_t>(NumElements(shape)));
    for (float& value : values) value = scale * next_++;
    Add(name, std::move(values), shape);
  }
  void Add(const std::string& name, std::vector<float> values, const Shape& shape) {
    specs_.push_back({name, DType::kF32, shape});
    values_[name] = std::move(values);
  }
  void AddPair(const std::string& module, std::int64_t rank, std::int64_t in, std::int64_t out) {
    Add(kPrefix + module + ".lora_A.weight", {rank, in});
    Add(kPrefix + module + ".lora_B.weight", {out, rank});
  }
  void Remove(const std::string& name) {
    std::erase_if(specs_, [&](const TensorSpec& spec) { return spec.name == name; });
  }
  const std::vector<float>& operator[](const std::string& name) const { return values_.at(kPrefix + name); }

  std::string Write() const {
    folder_.Write("adapter_config.json", config_);
    SafetensorsWriter writer(folder_ / "adapter_model.safetensors", specs_);
    for (const TensorSpec& spec : specs_) writer.Write(spec.name, std::as_bytes(std::span(values_.at(spec.name))));
    writer.Commit();
    return folder_.path().string();
  }

 private:
  const std::string config_;
  TempFolder folder_;
  std::vector<TensorSpec> specs_;
  std::map<std::string, std::vector<float>> values_;
  float next_ = 1;
};

// Two slots of one rank, full of NaN, and the receiver that fills them.
class Rank {
 public:
  explicit Rank(const std::string& config, const ParallelConfig& parallel = {}, std::vector<std::string> modules = {},
                std::int64_t max_rank = 4, const ReceiverOptions& receiver = {})
      : slots_(AdapterTermsOf(*TreeOfConfig(config, parallel), modules),
               {.slots = 2, .max_rank = max_rank, .dtype = DType::kF32}, memory_, memory_),
        receiver_(TreeOfConfig(config, parallel), parallel,
                  {.max_rank = max_rank, .modules = modules, .dtype = DType::kF32},
                  {slots_.Buffers(0), slots_.Buffers(1)}, receiver) {
    for (std::size_t slot = 0; slot < 2; ++slot) {
      for (const CapturedBuffer& buffer : slots_.Buffers(slot)) {
        std::span values(reinterpret_cast<float*>(buffer.address), static_cast<std::size_t>(NumElements(buffer.shape)));
        std::ranges::fill(values, std::numeric_limits<float>::quiet_NaN());
      }
    }
  }

  LoadedAdapter Load(const std::string& path, std::size_t slot = 0) { return receiver_.Load(slot, {.path = path}); }
  LoadedAdapter Load(const AdapterSource& source, std::size_t slot = 0) { return receiver_.Load(slot, source); }

  std::int64_t max_rank() const { return slots_.sizes().max_rank; }
  // Elements of a slot's buffer, row-major.
  std::span<const float> Values(const std::string& buffer, std::size_t slot = 0) const {
    for (const CapturedBuffer& each : slots_.Buffers(slot)) {
      if (each.name != "model.layers.0." + buffer) continue;
      return {reinterpret_cast<const float*>(each.address), static_cast<std::size_t>(NumElements(each.shape))};
    }
    throw std::runtime_error("no buffer " + buffer);
  }

 private:
  HostMemory memory_;
  AdapterSlots slots_;
  AdapterReceiver receiver_;
};

inline std::vector<float> AsVector(std::span<const float> values) { return {values.begin(), values.end()}; }

}  // namespace layercast::testing
