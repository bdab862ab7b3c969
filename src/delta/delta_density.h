// How dense a delta is, and what each form of it would take: measured in a pass that has the bytes in cache anyway (one
// that copies and digests them), to choose between delta and dense, and the effort, before anything is encoded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/delta/delta_frame.h"

namespace layercast {

// Value.
struct DeltaCount {
  std::size_t elements = 0;
  std::size_t changed = 0;
  std::size_t first = 0;  // the first that changed, and the one after the last
  std::size_t end = 0;

  double density() const { return elements == 0 ? 0.0 : static_cast<double>(changed) / static_cast<double>(elements); }
};

// Counts what changed, block by block, in order. Value; one thread only.
class DensityMeter {
 public:
  explicit DensityMeter(std::size_t element_bytes) : element_bytes_(element_bytes) {}

  // As many whole elements of both. Returns how many of this block changed.
  std::size_t Add(std::span<const std::byte> base, std::span<const std::byte> next);
  const DeltaCount& count() const { return count_; }

 private:
  std::size_t element_bytes_;
  DeltaCount count_;
  std::vector<std::uint64_t> words_;
};

// Bytes of each form, its frame's head included: what steps of one byte and changes that are not clustered would take.
// Value.
struct DeltaEstimate {
  double range = 0.0;
  double gaps = 0.0;
  double bitmap = 0.0;
  double dense = 0.0;

  double least() const;
};
DeltaEstimate EstimateDelta(const DeltaCount& count, std::size_t element_bytes, DeltaEffort effort);

}  // namespace layercast
