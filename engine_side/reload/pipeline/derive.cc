#include "engine_side/reload/pipeline/derive.h"

#include <cstddef>
#include <variant>
#include <vector>

#include "src/tensor/region.h"
#include "src/tensor/walk.h"

namespace layercast {
namespace {

static_assert(DerivedTensor::StridedView::kMaxRank == Walk::kMaxRank);

// Makes a derived tensor: one overload for each form that DerivedTensor has.
struct Maker {
  const DerivedTensor& tensor;
  FullPrecision& parameters;
  StageWork& work;
  std::span<std::byte> derived;

  void operator()(const DerivedTensor::StridedView& view) const {
    const TensorSpec& source = tensor.sources.front();
    std::byte* const first = parameters.Of(source).data() + view.offset * BitsPerElement(source.dtype) / 8;
    const Device device = work.layer_memory().device();
    work.CopyStrided({source.name, first, source.dtype, tensor.spec.shape, view.strides, device}, derived);
  }

  void operator()(const DerivedTensor::NegatedExponential& /*form*/) const {
    const TensorSpec& source = tensor.sources.front();
    work.NegateExponential(source.dtype, parameters.Of(source).data(), source.num_elements(),
                           reinterpret_cast<float*>(derived.data()));
  }

  void operator()(const DerivedTensor::Compute& compute) const {
    std::vector<std::span<const std::byte>> sources;
    for (const TensorSpec& source : tensor.sources) sources.emplace_back(parameters.Of(source));
    Buffer memory;
    std::vector<std::byte> computed(derived.size());
    compute(work.ReadBack(sources, memory), computed);
    work.Write(AsView(computed), derived.data());
  }
};

}  // namespace

void Derive(const DerivedTensor& tensor, FullPrecision& parameters, StageWork& work, std::span<std::byte> derived) {
  std::visit(Maker{tensor, parameters, work, derived}, tensor.form);
}

void DeriveStage::Run(const PlannedLayer& layer) const {
  const std::span<const KernelTensor> derived = layout_.DerivedOf(layer);
  if (derived.empty()) return;
  LayerTensors in_sink{layout_.TensorsOf(layer), {}};
  for (const KernelTensor& tensor : in_sink.tensors) in_sink.bytes.push_back(sink_.BytesOf(tensor));
  FullPrecision parameters(plan_, recipes_, work_, layer, in_sink);
  for (std::size_t i = 0; i < derived.size(); ++i) {
    const std::span<std::byte> bytes = sink_.BytesOf(derived[i]);
    Derive(layer.derived[i], parameters, work_, bytes);
    work_.CheckDerived(layer.path, derived[i].spec, bytes);
  }
}

}  // namespace layercast
