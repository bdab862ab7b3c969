// The norms' weights as they were published, where noise is served in their place: of the version that is served, and
// of the one that is being installed. They are small. Whatever leaves the engine (export, what it lends) and whatever
// begins anew from what is served (a partial version) takes them. Used by NormNoise.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine_side/reload/layout/kernel_layout.h"
#include "engine_side/reload/noise/norms.h"
#include "layercast/memory.h"
#include "layercast/noise/noise.h"

namespace layercast {

// What goes with a version's norms. Value.
struct NormState {
  std::uint32_t known = 0;  // 0: there is no such version, or only its name is known
  std::uint32_t slot = 0;   // where its clean norms are
  Noise noise{};            // sigma 0: none, and the captured buffers have the clean norms themselves
};

// In memory that outlives a process, what it knew outlives it too. Resource; one thread at a time, but Clean of the
// served version may be read by others until the next Begin after a Become.
class CleanNorms {
 public:
  CleanNorms(const KernelLayout& layout, const std::vector<Norm>& norms, MemoryResource& memory);

  // Another version is about to be installed.
  void Begin();
  // Where its clean norms go, and how they are known once they are all there.
  std::span<std::byte> Staged(const Norm& norm) const { return In(staged_slot(), norm); }
  void Note(const Noise& noise);
  const NormState& staged() const { return record_.staged; }

  // What was staged was committed.
  void Become();
  // What was served at the latest Settle is served again.
  void RollBack();
  void Settle();
  // Nobody knows what the captured buffers hold.
  void Lose();
  const NormState& served() const { return record_.served; }
  std::span<std::byte> Served(const Norm& norm) const { return In(record_.served.slot, norm); }

 private:
  // As it lies in memory, twice: one is valid while the other is written. Valid if the seal is the digest of the rest.
  struct Record {
    Digest layout;
    std::uint64_t writes = 0;
    NormState served, before, staged;
    Digest seal;

    Digest Sealed() const;
  };

  std::uint32_t staged_slot() const { return 1 - record_.served.slot; }
  std::span<std::byte> In(std::uint32_t slot, const Norm& norm) const;
  std::size_t RecordBytes() const;
  void Write();

  const KernelLayout& layout_;
  std::size_t slot_bytes_ = 0;
  Buffer memory_;  // the two records, then the two slots
  Record record_{};
};

}  // namespace layercast
