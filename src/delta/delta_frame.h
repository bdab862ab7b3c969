// Lossless deltas between two versions of a tensor's bytes: what changed, as one frame of bytes (FORMAT.md). Pure
// functions over bytes; whoever sends or keeps frames uses them. A frame names the digests of what it leads from and
// to, and one of itself: a base that is not what was thought is refused before a byte is written, and so is a frame of
// which any bit is not as it was made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "layercast/version.h"
#include "src/delta/delta_header.h"

namespace layercast {

// What is spent on making a frame small.
enum class DeltaEffort : std::uint8_t {
  kFast,      // bytes as they are
  kSmall,     // Huffman-coded
  kSmallest,  // also in two lists, by the magnitude of the base: a sixth less, and slower to make and to read
};

// Bytes of a tensor, and their digest if it is known (so that it need not be computed). Value; borrows.
struct KnownBytes {
  std::span<const std::byte> bytes;
  std::optional<Digest> digest = {};
};

// The frame that leads from `base` to `next`, as small as its forms allow. Elements have 1, 2 or 4 bytes. Throws
// kInvalidArgument if the two are not of as many whole elements. Takes memory for a bit per element and for the
// changes.
std::vector<std::byte> EncodeDelta(const KnownBytes& base, const KnownBytes& next, std::size_t element_bytes,
                                   DeltaEffort effort);
// The frame that leads to `next` from anything: for whoever has no base that is known.
std::vector<std::byte> EncodeDense(const KnownBytes& next, std::size_t element_bytes, DeltaEffort effort);

// The head of a frame, whose digest is checked. Throws kCorrupt.
DeltaHeader ReadDeltaHeader(std::span<const std::byte> frame);

// Makes the new bytes of the base, in its place. Throws kFailedPrecondition if the base is another one, kCorrupt for a
// frame that is not right; then not one byte has changed. (If all of a frame holds, but it does not lead to what it
// says, which only who made it can bring about, the steps are taken back: they can be, since they add.) A digest of the
// base is taken for what its bytes have: so it must have been computed of them.
void ApplyDelta(std::span<const std::byte> frame, std::span<std::byte> bytes, std::optional<Digest> base = {});
// The same in one pass over memory into other bytes, as many, which do not overlap. Throws the same; but a base that is
// not the right one may then be found after bytes were written: those at `into` mean nothing unless this returns.
void ApplyDeltaInto(std::span<const std::byte> frame, const KnownBytes& base, std::span<std::byte> into);

// The frame that leads to where `second` does, from where `first` begins, without any bytes of tensors. Throws
// kInvalidArgument if the second does not begin where the first ends, kUnsupported for one in two lists (which are in
// terms of the base's bytes), unless the second is dense.
std::vector<std::byte> FoldDeltas(std::span<const std::byte> first, std::span<const std::byte> second,
                                  DeltaEffort effort);

}  // namespace layercast
