// What a store has of a version beside its tensors' bytes, and what it knows of a run (FORMAT.md). Values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/tensor/manifest/manifest.h"

namespace layercast {

// A version, or a part of one. The digest at the end of its form covers all of it.
struct VersionRecord {
  Manifest manifest;
  std::string run;                 // PublishOptions::run; empty: unknown
  std::string config;              // Weights::config
  std::uint64_t published_ms = 0;  // since 1970
  // Of a version that several ranks have written: what each has of it, in their order. `manifest` follows from them.
  std::vector<Manifest> parts{};

  // One of all ranks' records, in their order. Throws kInvalidArgument if they do not fill each tensor exactly once.
  static VersionRecord OfParts(std::vector<VersionRecord> records);
  // The manifests whose tensors are the version's objects.
  std::span<const Manifest> held() const { return parts.empty() ? std::span(&manifest, 1) : std::span(parts); }

  std::vector<std::byte> Encode() const;
  // Throws kCorrupt on anything but what Encode writes.
  static VersionRecord Decode(std::span<const std::byte> bytes);
};

// A run of a lineage's trainer, which began with that step.
struct RunRecord {
  std::string run;
  std::uint64_t first_step = 0;

  std::vector<std::byte> Encode() const;
  static RunRecord Decode(std::span<const std::byte> bytes);
  bool operator==(const RunRecord&) const = default;
};

// The size of the object that holds a tensor of so many bytes: these, and the digests of their leaves.
std::uint64_t ObjectBytes(std::uint64_t tensor_bytes);
// The bytes of a manifest's tensor.
std::uint64_t BytesOf(const Manifest& manifest, std::uint32_t tensor);

}  // namespace layercast
