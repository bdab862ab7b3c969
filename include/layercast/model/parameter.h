// A parameter of the module tree: pure data. On meta it has a dtype, a shape and a sharding, and no memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layercast/export.h"
#include "layercast/memory.h"
#include "layercast/tensor.h"

namespace layercast {

struct QuantizedForm;

// Which axis of the whole weight a rank holds a part of.
enum class ShardAxis : std::uint8_t { kNone, kRows, kCols };

// Which values the elements of a parameter may have. Any other is an error.
enum class Sign : std::uint8_t { kAny, kNotNegative, kPositive };

// Resource: owns its storage once it has some. One thread at a time.
struct LAYERCAST_PUBLIC Parameter {
  TensorSpec spec;  // name within its module ("weight"); shape of this rank's part, fused
  ShardAxis shard_axis = ShardAxis::kNone;
  bool quantize = false;  // a recipe applies (weights of linear layers, of experts); otherwise copied as it is
  Buffer storage;         // empty while on meta
  Sign sign = Sign::kAny;
  // The value of every element if a version has nothing for this layer; empty: that is an error.
  std::optional<float> fallback = {};
  // Another parameter of the module, whose tensors fill this one too if some of them come and none of its own do.
  std::optional<std::uint32_t> stand_in = {};
  // The quantized form in which checkpoints may hold this weight, by config.json; null: full precision. Owned by the
  // layer.
  const QuantizedForm* form = nullptr;

  bool on_meta() const { return !storage; }
  // Gives it memory of its size, initialized only if the memory resource does so.
  void MaterializeOn(MemoryResource& memory);
  void ToMeta() { storage = Buffer(); }
};

}  // namespace layercast
