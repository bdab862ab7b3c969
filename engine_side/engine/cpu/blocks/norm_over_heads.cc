#include "engine_side/engine/cpu/blocks/norm_over_heads.h"

#include "engine_side/engine/cpu/kernels/row_kernels.h"

namespace layercast {

NormOverHeads::NormOverHeads(const Attention& attention, const std::string& path, const BlockContext& context)
    : collective_(context.collective),
      dtype_(context.dtype),
      parts_{Find(attention, "q_norm", path, context.weights), Find(attention, "k_norm", path, context.weights)} {}

NormOverHeads::Part NormOverHeads::Find(const Attention& attention, const char* name, const std::string& path,
                                        CapturedWeights& weights) {
  const auto& module = dynamic_cast<const ParallelRMSNorm&>(*attention.FindChild(name));
  return {Norm(module, path + "." + name, weights), static_cast<float>(module.total_size())};
}

void NormOverHeads::Apply(Activations& qkv) {
  const std::array<std::vector<float>, 2> factors = {parts_[0].norm.Factors(), parts_[1].norm.Factors()};
  const auto part_of = [&](std::size_t row, std::size_t part) {
    return qkv[row].subspan(part * factors[0].size(), factors[part].size());
  };
  sums_.resize(qkv.rows() * parts_.size());
  for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] = SumOfSquares(part_of(i / 2, i % 2));
  collective_.AllReduceSum(sums_);
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    const Part& part = parts_[i % 2];
    part.norm.Apply(sums_[i] / part.total_size, factors[i % 2], dtype_, part_of(i / 2, i % 2));
  }
}

}  // namespace layercast
