// What each block of a decoder layer computes, said once for both forward passes: its constants, and its operands under
// the names of modules and parameters. How it is computed, and where a sequence's state lies, is for a pass to say.
// Made by DescribeBlock from the module tree; executed by the blocks in cpu/blocks and torch/blocks. A block that
// computes something new is described here first. All are values, with this rank's sizes; weights and rotary tables
// are borrowed. Torch-free.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine_side/engine/blocks/operands.h"
#include "engine_side/engine/cpu/kernels/activation.h"
#include "layercast/model/attention.h"
#include "layercast/model/gated_delta_net.h"
#include "layercast/model/latent_attention.h"
#include "layercast/model/mamba_mixer.h"
#include "layercast/model/mixture_of_experts.h"

namespace layercast {

// Grouped-query attention. The heads of queries and keys are normalized, then rotated.
struct AttentionDescription {
  AttentionSpec spec;
  RotaryTable* rotary;                        // null: no rotation
  LinearOperand qkv_proj, o_proj;             // rows of qkv_proj: query heads, key heads, value heads
  std::optional<NormOperand> q_norm, k_norm;  // over each head, or over the heads of all ranks together
  std::optional<WeightView> sinks;            // one score for each head

  // From one query head to the next in the output of qkv_proj.
  std::int64_t query_stride() const { return spec.heads.head_dim * (spec.output_gate ? 2 : 1); }
};

// Multi-head latent attention in its absorbed form: w_uk_t takes queries to the latent space, where they attend to the
// latent vectors, the only ones that are cached; w_uv turns the result into values.
struct LatentAttentionDescription {
  LatentAttentionSpec spec;
  RotaryTable* rotary;
  LinearOperand compress;    // makes: queries' small vector (if any), latent vector, key
  LinearOperand queries_of;  // of their small vector, normalized, or, if there is none, of the input
  LinearOperand o_proj;
  WeightView w_uk_t, w_uv;  // head after head
  // Of kv_b_proj, of which w_uk_t and w_uv are made: B has for each head the rows that make keys, then those that make
  // values. With q and o the head's query and result in the latent space, and B_K, B_V its rows:
  //   q w_uk_t + scale * (q B_K) A        w_uv o + scale * B_V (A o)
  AdapterOperand kv_b_adapter{};
  std::optional<NormOperand> q_a_layernorm;
  NormOperand kv_a_layernorm;
};

// What a feed-forward layer computes of the output of `up`: act(gate) * up of the two halves, or act of the whole.
struct MlpActivation {
  Activation function = Activation::kSilu;
  bool gated = true;
  std::optional<ClampedGate> clamped = {};  // instead of act(gate) * up
};

// down(activation(up(x))).
struct MlpDescription {
  MlpActivation activation;
  LinearOperand up, down;
};

// Which experts a token goes to. Scores are made of `logits`.
struct RouterDescription {
  Routing routing;
  LinearOperand logits;
  DType weights_dtype = DType::kF32;               // experts' weights are rounded to it
  std::optional<WeightView> correction_bias = {};  // added to the scores when experts are picked
};

// The sum of what the picked experts and the shared one make of a token.
struct MoeDescription {
  RouterDescription router;  // it reads the input itself
  std::optional<MlpDescription> shared;
  std::optional<LinearOperand> shared_gate;             // its sigmoid multiplies the shared expert's output
  std::optional<LinearOperand> to_latent, from_latent;  // around the experts
  LocalExperts local;
  std::vector<MlpDescription> experts;  // this rank's; their outputs are summed before anything is rounded
};

// Mamba-2's mixer. Rows of in_proj: gate, x, B, C, time steps; conv1d goes over x, B and C.
struct MambaDescription {
  MambaSizes sizes;
  MambaOptions options;
  LinearOperand in_proj, out_proj;
  LinearWeights conv1d;
  WeightView a, d, dt_bias;
  NormOperand norm;  // over each group, of y * silu(gate)
};

// A gated delta net. conv1d goes over queries, keys and values, which are activated then.
struct DeltaNetDescription {
  static constexpr double kLengthEpsilon = 1e-6;  // added to the squared length that queries and keys are divided by

  DeltaNetSizes sizes;
  // The sizes of a key head's parts in the outputs of in_proj_qkvz and in_proj_ba, which go head by head; empty: they
  // go part by part, each with all heads.
  std::vector<std::int64_t> qkvz_parts, ba_parts;
  Activation activation = Activation::kSilu;
  LinearOperand in_proj_qkvz, in_proj_ba, out_proj;
  LinearWeights conv1d;
  WeightView a, dt_bias;
  NormOperand norm;  // over each value head
};

using BlockDescription = std::variant<AttentionDescription, LatentAttentionDescription, MlpDescription, MoeDescription,
                                      MambaDescription, DeltaNetDescription>;

// Describes the block that `module` is, which is at `path` in the tree. Throws kUnsupported, naming path and class, if
// there is none.
BlockDescription DescribeBlock(const Module& module, const std::string& path, const DescriptionContext& context);

}  // namespace layercast
