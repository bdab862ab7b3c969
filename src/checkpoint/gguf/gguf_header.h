// What a GGUF file says about itself and its tensors, checked against the format's bounds. Used by the loader of
// `gguf`. All numbers are little-endian.
//   "GGUF"  u32 version (2 or 3)  u64 tensors  u64 entries
//   entry:  text key, u32 type, value      text: u64 length, bytes      array: u32 type, u64 length, values
//   tensor: text name, u32 dimensions, u64 of each (the innermost first), u32 type, u64 offset
//   padding to a multiple of `general.alignment` (32), from where the offsets count
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/tensor.h"

namespace layercast {

// The encodings that Layercast reads. Others are refused by name.
enum class GgufType : std::uint32_t { kF32 = 0, kF16 = 1, kQ80 = 8, kBF16 = 30 };

// Q8_0: 32 elements in a row share a scale: an fp16 number, then 32 signed bytes.
inline constexpr std::int64_t kQ8BlockElements = 32;
inline constexpr std::int64_t kQ8BlockBytes = 34;

// Value.
struct GgufHeader {
  struct Tensor {
    std::string name;
    Shape shape;  // the innermost dimension last, as everywhere else
    GgufType type = GgufType::kF32;
    std::uint64_t begin = 0;  // where its bytes begin in the file
    std::uint64_t bytes = 0;
  };
  std::vector<Tensor> tensors;                   // as the file lists them
  std::set<std::string> keys;                    // of all entries; of arrays nothing else is kept
  std::map<std::string, std::string> texts;      // entries that are text
  std::map<std::string, std::uint64_t> numbers;  // entries that are whole numbers, none negative
  std::map<std::string, float> floats;           // entries that are fp32

  // Throws kCorrupt, with a message that begins with `subject`, if there is no such entry.
  const std::string& Text(const std::string& key, const std::string& subject) const;
  std::uint64_t Number(const std::string& key, const std::string& subject) const;
};

// `file` is the whole file. Throws kCorrupt, naming tensor, offset, expected and got, and kUnsupported, naming an
// encoding that is not read. Every message begins with `subject`. Never reads outside `file`.
GgufHeader ParseGguf(std::span<const std::byte> file, const std::string& subject);

// How many tensors the file lists. Reads its first bytes alone. Throws kCorrupt if it is not a GGUF file.
std::uint64_t CountGgufTensors(std::span<const std::byte> file, const std::string& subject);

}  // namespace layercast
