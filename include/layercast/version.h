// What a version is called: `{lineage, step, digest}`, and how it is published. Used on both sides. Values.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "layercast/export.h"

namespace layercast {

// A 128-bit XXH3 hash, made from those of leaves (src/base/digest/digest.h). All bits zero: no digest.
struct LAYERCAST_PUBLIC Digest {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  auto operator<=>(const Digest&) const = default;
  explicit operator bool() const { return (high | low) != 0; }
  std::string ToHex() const;                                    // 32 lower-case digits
  static std::optional<Digest> FromHex(std::string_view text);  // nullopt: not 32 hexadecimal digits
};

struct LAYERCAST_PUBLIC Version {
  std::string lineage;     // a training run; versions of two lineages are never ordered
  std::uint64_t step = 0;  // grows within a lineage
  Digest digest;           // of the canonical manifest: all specs and, of a snapshot, every tensor's digest

  bool operator==(const Version&) const = default;
  std::string ToString() const;  // "run-17@42:0123456789abcdef" (the digest shortened)
};

// Which of a version's publishers this is, when each rank of a sharded trainer publishes what it holds.
struct VersionPart {
  int rank = 0;
  int ranks = 1;

  bool operator==(const VersionPart&) const = default;
};

// kSnapshot: the version stays in memory, and engines pull it at their own pace. kStream: the tensors are walked once
// for each engine as it takes them, and kept no longer than that.
enum class PublishMode : std::uint8_t { kSnapshot, kStream };

}  // namespace layercast
