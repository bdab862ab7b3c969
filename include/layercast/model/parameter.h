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

// What the elements of a parameter may be. Another one is an error.
enum class Sign : std::uint8_t { kAny, kNotNegative, kPositive };

// Resource: owns its storage once it has some. One thread at a time.
struct LAYERCAST_PUBLIC Parameter {
  TensorSpec spec;  // name within its module ("weight"); shape of this rank's part, fused
  ShardAxis shard_axis = ShardAxis::kNone;
  bool quantize = false;  // a recipe applies (weights of linear layers, of experts); otherwise copied as it is
  Buffer storage;         // empty while on meta
  Sign sign = Sign::kAny;
  // What every element is in a version that has nothing for this layer; empty: that is an error.
  std::optional<float> fallback = {};
  // The parameter of its module whose tensors fill this one too where none of its own come, and some of that one's do.
  std::optional<std::uint32_t> stand_in = {};
  // How config.json says that checkpoints may hold this weight; null: in full precision. The layer's.
  const QuantizedForm* form = nullptr;

  bool on_meta() const { return !storage; }
  // Gives it memory of its size, uninitialized but for what the memory resource does.
  void MaterializeOn(MemoryResource& memory);
  void ToMeta() { storage = Buffer(); }
};

}  // namespace layercast
