// One rank of a small model of any family, with random fp32 weights and slots for adapters. Every number is a function
// of its place in the checkpoint, so that ranks fit together. For tests of what adapters do to whole models.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine_side/engine/cpu/cpu_decoder.h"
#include "layercast/model/config.h"
#include "layercast/parallel.h"
#include "src/base/memory/counting_memory.h"
#include "tests/support/filled_slots.h"

namespace layercast::testing {

// Resource; one thread only.
class FamilyRank {
 public:
  static constexpr std::size_t kSlots = 3;

  FamilyRank(const ModelConfig& config, const ParallelConfig& parallel, Collective& collective);

  FilledSlots& slots() { return *slots_; }
  Decoder& decoder() { return *decoder_; }
  const Module& tree() const { return *tree_; }
  const std::vector<CapturedBuffer>& buffers() const { return buffers_; }
  // weight += scale * B A of the slot's adapter, and what derives from it anew. For a single rank.
  void Merge(std::size_t slot);
  // Undoes that.
  void Restore();

 private:
  // Of a parameter of this rank, its rows' and columns' indices in their checkpoint tensors, element by element.
  struct Places {
    std::vector<float> rows, columns;
  };

  void AddBuffers(Module& module, const std::string& path);
  void Derive(const Module& module, const std::string& path);
  void AddPlaces(const ModelConfig& config, const ParallelConfig& parallel);
  float* Values(const std::string& name) const;
  void MakeSlots();
  std::int64_t ExpertOf(const AdapterTerm& term, std::int64_t expert) const;

  HostMemory host_;
  FillingMemory zeros_{host_, std::byte{0}};
  std::unique_ptr<Module> tree_;
  std::vector<Buffer> derived_;
  std::vector<CapturedBuffer> buffers_;
  std::vector<std::vector<std::byte>> unmerged_;  // what they held at first
  std::map<std::string, Places> places_;          // by the names of buffers
  std::unique_ptr<FilledSlots> slots_;
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace layercast::testing
