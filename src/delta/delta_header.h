// The head of a delta frame: what it leads from and to, and the digest of the frame. FORMAT.md specifies its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "layercast/version.h"
#include "src/base/bytes/archive.h"

namespace layercast {

// How a frame says which elements changed.
enum class DeltaForm : std::uint8_t {
  kSkip,      // none
  kDense,     // the new bytes, whatever was there before
  kRange,     // all of a range
  kGaps,      // the gaps between them
  kBitmap,    // a bit for each element
  kTwoLists,  // gaps among the elements that are small in the base, and gaps of the others
};
std::string_view NameOf(DeltaForm form);

// Value.
struct DeltaHeader {
  std::size_t element_bytes = 1;
  DeltaForm form = DeltaForm::kSkip;
  std::uint64_t elements = 0;
  std::uint64_t changed = 0;    // how many steps there are; all elements if dense
  std::uint64_t parameter = 0;  // kRange: the first element; kTwoLists: the threshold
  Digest base;                  // of what it is applied to; zeros if dense
  Digest result;                // of what that becomes

  std::uint64_t bytes() const { return elements * element_bytes; }
};

// A frame of this head and body.
std::vector<std::byte> JoinFrame(const DeltaHeader& header, std::span<const std::byte> body);

// Value; borrows the frame.
struct OpenedFrame {
  DeltaHeader header;
  std::span<const std::byte> body;
};
// Throws kCorrupt unless the frame's digest holds and the head's fields agree with one another.
OpenedFrame OpenFrame(std::span<const std::byte> frame);

}  // namespace layercast
