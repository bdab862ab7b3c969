#include "engine_side/reload/pipeline/derived_check.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "engine_side/reload/pipeline/derive.h"
#include "engine_side/reload/work/full_precision.h"
#include "layercast/error.h"

namespace layercast {

DerivedCheck::DerivedCheck(const LoadPlan& plan, const KernelLayout& layout, const LayerRecipes& recipes,
                           MemoryResource& memory, WorkerPool& pool)
    : plan_(plan), layout_(layout), recipes_(recipes), memory_(memory), work_(memory, pool) {
  for (const PlannedLayer& planned : plan.layers()) {
    if (planned.derived.empty()) continue;
    const std::span<const KernelTensor> tensors = layout.TensorsOf(planned);
    layers_.emplace(layout.IndexOf(tensors.front()),
                    Layer{&planned, tensors, std::vector<Buffer>(tensors.size()), tensors.size()});
  }
}

void DerivedCheck::Take(const KernelTensor& tensor, std::span<const std::byte> bytes) {
  const std::size_t index = layout_.IndexOf(tensor);
  const auto behind = layers_.upper_bound(index);
  if (behind == layers_.begin()) return;
  auto& [first, layer] = *std::prev(behind);
  if (index - first >= layer.tensors.size()) return;
  Buffer& copy = layer.copies[index - first] = Buffer(memory_, bytes.size());
  std::ranges::copy(bytes, copy.data());
  if (--layer.missing != 0) return;
  Check(layer);
  layer.copies.clear();
}

void DerivedCheck::Check(const Layer& layer) {
  LayerTensors host{layer.tensors, {}};
  for (const Buffer& copy : layer.copies) host.bytes.push_back(copy.span());
  FullPrecision parameters(plan_, recipes_, work_, *layer.planned, host);
  for (const DerivedTensor& derived : layer.planned->derived) {
    const std::size_t at = layer.tensors.size() - layer.planned->derived.size() +
                           static_cast<std::size_t>(&derived - layer.planned->derived.data());
    const std::span<const std::byte> came = host.bytes[at];
    const Buffer made(memory_, came.size());
    Derive(derived, parameters, work_, made.span());
    const auto differs = std::ranges::mismatch(made.span(), came).in2;
    if (differs == came.end()) continue;
    throw Error(ErrorCode::kCorrupt, "layer " + layer.planned->path + ": '" + layer.tensors[at].spec.name +
                                         "': expected what derives from the layer's parameters that came with it, got "
                                         "another byte at " +
                                         std::to_string(differs - came.begin()));
  }
}

}  // namespace layercast
