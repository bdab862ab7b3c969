// Seeded damage to bytes that were right: what a decoder of files or frames must refuse or understand, and survive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>

namespace layercast {

// Value; the same seed gives the same damage everywhere (std::mt19937 is specified to the bit; the distributions
// of the standard library are not, so none is used).
class Damage {
 public:
  // `likely`: bytes that mean something to the decoder.
  Damage(std::uint32_t seed, std::string_view likely) : random_(seed), likely_(likely) {}

  // `bytes` after one to four edits: a byte replaced, inserted, a few erased, a stretch repeated, a bit flipped.
  std::string Apply(std::string bytes) {
    for (std::size_t edits = 1 + Below(4); edits > 0 && !bytes.empty(); --edits) Edit(bytes);
    return bytes;
  }

  std::size_t Below(std::size_t bound) { return random_() % bound; }

 private:
  void Edit(std::string& bytes) {
    const std::size_t at = Below(bytes.size());
    switch (Below(5)) {
      case 0: bytes[at] = Likely(); break;
      case 1: bytes.insert(at, 1, Likely()); break;
      case 2: bytes.erase(at, 1 + Below(3)); break;
      case 3: bytes.insert(at, bytes.substr(Below(bytes.size()), Below(40))); break;
      default: bytes[at] = static_cast<char>(bytes[at] ^ (1 << Below(8))); break;
    }
  }

  char Likely() { return likely_[Below(likely_.size())]; }

  std::mt19937 random_;
  std::string likely_;
};

}  // namespace layercast
