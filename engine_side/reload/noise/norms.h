// Which kernel tensors get a version's noise: the weight of every RMS norm of the tree. Used by NormNoise.
//
// All of them: those of hidden states and the final one, q_norm and k_norm, those of latent attention, the gated ones
// of linear attention, and a draft model's; QeRL picks every module of its model's RMSNorm class. Noise is added to the
// weight as checkpoints hold it. Where a norm multiplies by (1 + weight), as Gemma's do, what it multiplies by changes
// by as much; where a norm is gated, the gate is left alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine_side/reload/layout/kernel_layout.h"
#include "layercast/model/module.h"

namespace layercast {

// Value.
struct Norm {
  std::size_t tensor = 0;           // index in KernelLayout::tensors()
  std::uint64_t first_channel = 0;  // of the whole norm, where this rank holds a part of it
  std::size_t offset = 0;           // of its bytes, where those of all norms lie one behind the other
};

// In the order of the layout.
std::vector<Norm> NormsOf(const Module& model, const KernelLayout& layout);

}  // namespace layercast
