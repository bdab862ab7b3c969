#include "src/adapter/tied_factors.h"

#include <cstring>

#include "layercast/error.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

bool IsHead(const AdapterModule& module) { return module.path == "lm_head" || module.path.ends_with(".lm_head"); }

bool IsTransposed(const TensorView& left, const TensorView& right) {
  if (left.dtype != right.dtype || left.shape != Shape(right.shape.rbegin(), right.shape.rend())) return false;
  const auto rows = static_cast<std::size_t>(left.shape.at(0));
  const auto columns = static_cast<std::size_t>(left.shape.at(1));
  const auto bytes = static_cast<std::size_t>(BitsPerElement(left.dtype)) / 8;
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      const std::byte* const one = left.data + (row * columns + column) * bytes;
      if (std::memcmp(one, right.data + (column * rows + row) * bytes, bytes) != 0) return false;
    }
  }
  return true;
}

}  // namespace

std::pair<const AdapterModule*, const AdapterModule*> TiedModules(const AdapterTensors& tensors,
                                                                  const AdapterConfig& config) {
  const AdapterModule* embedding = nullptr;
  const AdapterModule* head = nullptr;
  if (!config.ensure_weight_tying) return {nullptr, nullptr};
  for (const AdapterModule& module : tensors.modules) {
    if (module.embedding && embedding == nullptr) embedding = &module;
    if (!module.embedding && IsHead(module)) head = &module;
  }
  if (embedding == nullptr || head == nullptr) return {nullptr, nullptr};
  return {embedding, head};
}

void CheckTiedFactors(const AdapterTensors& tensors, const AdapterConfig& config,
                      const std::function<NamedTensor(std::uint32_t)>& read) {
  const auto [embedding, head] = TiedModules(tensors, config);
  if (embedding == nullptr) return;
  const auto check = [&](std::uint32_t of_head, std::uint32_t of_embedding) {
    const NamedTensor left = read(of_head);
    const NamedTensor right = read(of_embedding);
    if (IsTransposed(left.tensor, right.tensor)) return;
    throw Error(ErrorCode::kUnsupported, "ensure_weight_tying: expected " + Quote(left.name) + " to be " +
                                             Quote(right.name) + ", transposed, got other values");
  };
  check(head->a, embedding->b);
  check(head->b, embedding->a);
}

}  // namespace layercast
