// policy_dump FOLDER: a policy with weights from a fixed seed, saved as a checkpoint, and its logits on fixed tokens in
// logits.safetensors. test_policy.py compares them with those of Hugging Face transformers.
#include <ATen/ATen.h>

#include <filesystem>

#include "examples/rl_loop/policy.h"
#include "src/checkpoint/safetensors/safetensors_writer.h"

namespace {

layercast::NamedTensor Named(const std::string& name, layercast::DType dtype, const at::Tensor& tensor) {
  return {.name = name,
          .tensor = {.dtype = dtype,
                     .shape = tensor.sizes().vec(),
                     .data = static_cast<const std::byte*>(tensor.const_data_ptr()),
                     .device = {}},
          .owner = nullptr};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::filesystem::path folder = argv[1];
  torch::manual_seed(11);
  // Weights far from their initial ones, so that a norm, a rotation or a head in the wrong place shows.
  rl_loop::Policy policy({.initializer_range = 0.3});
  const at::NoGradGuard no_gradients;
  for (at::Tensor& parameter : policy.parameters()) parameter.add_(at::randn_like(parameter), 0.1);
  const at::Tensor tokens = at::randint(0, 16, {5, 12}, at::kLong);
  const at::Tensor logits = policy.Forward(tokens).contiguous();
  rl_loop::SaveCheckpoint(policy, folder);
  layercast::WriteSafetensors(folder / "logits.safetensors",
                              std::vector<layercast::NamedTensor>{Named("tokens", layercast::DType::kI64, tokens),
                                                                  Named("logits", layercast::DType::kF32, logits)});
  return 0;
}
