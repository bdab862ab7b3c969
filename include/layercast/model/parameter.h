// A parameter of the module tree: pure data. On meta it has a dtype, a shape and a sharding, and no memory. Used by
// modules, load plans and the reload's stages.
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

// Which values the elements of a parameter may have. A load that brings another value fails.
enum class Sign : std::uint8_t { kAny, kNotNegative, kPositive };

// Resource: owns its storage once it has some. One thread at a time.
struct LAYERCAST_PUBLIC Parameter {
  TensorSpec spec;  // name within its module ("weight"); shape of this rank's part, fused
  ShardAxis shard_axis = ShardAxis::kNone;
  bool quantize = false;  // a recipe applies (to weights of linear layers and of experts); false: it is copied as it is
  Buffer storage;         // empty while on meta
  Sign sign = Sign::kAny;
  // The value that every element gets if a version has nothing for this layer. Empty: that is an error.
  std::optional<float> fallback = {};
  // The index of another parameter of the module, whose tensors fill this one too if they come and its own do not.
  std::optional<std::uint32_t> stand_in = {};
  // The quantized form in which checkpoints may hold this weight, as config.json says. Null: full precision only. Owned
  // by the layer.
  const QuantizedForm* form = nullptr;

  bool on_meta() const { return !storage; }
  // Gives the parameter memory of its size, which is initialized only if the memory resource does so.
  void MaterializeOn(MemoryResource& memory);
  void ToMeta() { storage = Buffer(); }
};

}  // namespace layercast
