#include "engine_side/reload/sources/kernel_taker.h"

#include "engine_side/model/naming/path.h"
#include "engine_side/plan/plan_problems.h"
#include "engine_side/reload/work/check_scales.h"
#include "layercast/error.h"
#include "src/tensor/manifest/manifest_entry.h"

namespace layercast {
namespace {

// Checks scales as those of a checkpoint are checked.
void CheckSign(const KernelTensor& tensor, std::span<const std::byte> bytes) {
  if (tensor.sign == Sign::kAny) return;
  const std::string& name = tensor.spec.name;
  if (tensor.powers_of_two) return CheckPowersOfTwo(bytes, ParentPath(name), name);
  if (tensor.spec.dtype != DType::kU8) {
    return CheckScales(tensor.spec.dtype, bytes.data(), static_cast<std::size_t>(tensor.spec.num_elements()),
                       tensor.sign, ParentPath(name), name);
  }
  const std::ptrdiff_t nan = FindNanExponent(bytes);
  if (nan < 0) return;
  throw Error(ErrorCode::kCorrupt, "'" + name + "': expected powers of two, got NaN at element " + std::to_string(nan));
}

}  // namespace

AwaitedTensors::AwaitedTensors(const KernelLayout& layout) {
  for (const KernelTensor& tensor : layout.tensors()) awaited_.emplace(tensor.spec.name, &tensor);
}

const KernelTensor* AwaitedTensors::Take(const TensorSpec& spec) {
  const auto found = awaited_.find(spec.name);
  if (found == awaited_.end()) {
    unexpected_.push_back("'" + spec.name + "'");
    return nullptr;
  }
  const KernelTensor* tensor = found->second;
  awaited_.erase(found);
  if (spec.dtype != tensor->spec.dtype || spec.shape != tensor->spec.shape) {
    misfits_.push_back("'" + spec.name + "': expected " + Describe(tensor->spec) + ", got " + Describe(spec));
  }
  return misfits_.empty() && unexpected_.empty() ? tensor : nullptr;
}

void AwaitedTensors::CheckAllCame() const {
  std::vector<std::string> missing;
  for (const auto& [name, tensor] : awaited_) missing.push_back("'" + std::string(name) + "'");
  const std::string problems = ProblemLine("that do not fit", misfits_, "; ") + ProblemLine("missing", missing) +
                               ProblemLine("unexpected or repeated", unexpected_);
  if (problems.empty()) return;
  throw Error(ErrorCode::kInvalidArgument, "these weights are not this engine's kernel tensors:" + problems);
}

std::vector<TensorSpec> SpecsOf(const KernelLayout& layout) {
  std::vector<TensorSpec> specs;
  for (const KernelTensor& tensor : layout.tensors()) specs.push_back(tensor.spec);
  return specs;
}

Manifest KernelManifest(const std::string& lineage, std::span<const TensorSpec> specs, const KernelLayout& layout) {
  AwaitedTensors awaited(layout);
  for (const TensorSpec& spec : specs) awaited.Take(spec);
  awaited.CheckAllCame();
  return Manifest::OfSpecs(lineage, 0, specs);
}

void KernelTaker::Take(const NamedTensor& named) {
  const KernelTensor* tensor = awaited_.Take({named.name, named.tensor.dtype, named.tensor.shape});
  if (tensor == nullptr) return;
  const TensorSummary summary = SummaryOf(named.name, named.tensor, pool_);
  const std::span bytes(named.tensor.data, tensor->num_bytes);
  CheckSign(*tensor, bytes);
  derived_.Take(*tensor, bytes);
  Bring(static_cast<std::uint32_t>(wanted_.manifest.Find(named.name)), named, summary);
}

}  // namespace layercast
