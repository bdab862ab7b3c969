// What a safetensors file says about its tensors, checked against every rule of the format:
//   8 bytes     N, little-endian, at most 100 000 000
//   N bytes     UTF-8 JSON, {"name": {"dtype", "shape", "data_offsets": [begin, end]}, ..., "__metadata__": {...}}
//   the rest    the tensors' bytes, which the offsets tile exactly: no hole, no overlap, nothing behind them
// Like the reference reader, this one also accepts white space before the brace, a `__metadata__` of null and other
// fields of a tensor. Unlike it, this one refuses a repeated key, of which readers keep one or the other, and an empty
// tensor whose other dimensions overflow 63 bits, whose strides nobody could compute.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "layercast/tensor.h"

namespace layercast {

inline constexpr std::size_t kSafetensorsPrefix = 8;  // the header's length
inline constexpr std::uint64_t kLargestSafetensorsHeader = 100'000'000;
inline constexpr char kSafetensorsMetadataKey[] = "__metadata__";

// Value.
struct SafetensorsHeader {
  struct Stored {
    TensorSpec spec;
    std::uint64_t begin = 0;  // where its bytes begin in the file
    std::uint64_t end = 0;
  };
  std::vector<Stored> tensors;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
};

// `file` is the whole file, which messages call `name`. Throws kCorrupt, naming file, tensor, offset, expected and got.
// Never reads outside `file`, whatever it holds.
SafetensorsHeader ParseSafetensors(std::span<const std::byte> file, const std::string& name);

}  // namespace layercast
