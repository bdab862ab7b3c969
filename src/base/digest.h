// The digest of bytes: XXH3-128 of each leaf of 8 KiB (the last may be shorter) and, where there are several, XXH3-128
// of those digests, one after the other, each as two little-endian u64: high half, low half. Leaves depend on nothing
// but their own bytes, so a device makes them all at once (src/cuda/leaf_digests.h), and a host no slower than without
// them: 0.98 of plain XXH3 from memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "layercast/version.h"
#include "src/base/leaves.h"

namespace layercast {

Digest DigestOf(std::span<const std::byte> bytes);
// Of the bytes that have these leaves. `leaves`: one at least.
Digest DigestOfLeaves(std::span<const Digest> leaves);
// As Digest::ToHex, behind what is there.
void AppendHex(const Digest& digest, std::string& to);

// Of bytes that come in pieces, which equals that of their concatenation.
// Resource; one thread only, but for copies of one that does not change.
class Digester {
 public:
  Digester();
  ~Digester();
  Digester(const Digester& other);  // goes on from what that one has taken in
  Digester& operator=(const Digester&) = delete;
  Digester(Digester&&) noexcept;
  Digester& operator=(Digester&&) noexcept;

  void Update(std::span<const std::byte> bytes);
  Digest Finish() const;  // may be called again after more updates
  void Reset();

 private:
  struct State;
  std::size_t FillLeaf(std::span<const std::byte> bytes);
  void AddLeaf(const Digest& leaf);

  std::unique_ptr<State> state_;
};

}  // namespace layercast
