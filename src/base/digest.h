// XXH3-128 of bytes, whole or in pieces. The digest of pieces equals that of their concatenation.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "layercast/version.h"

namespace layercast {

Digest DigestOf(std::span<const std::byte> bytes);

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
  std::unique_ptr<State> state_;
};

}  // namespace layercast
