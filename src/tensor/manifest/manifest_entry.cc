#include "src/tensor/manifest/manifest_entry.h"

#include <span>

#include "layercast/error.h"
#include "src/base/digest/digest_all.h"
#include "src/tensor/kernels/scan.h"

namespace layercast {
namespace {

// The tensor as a matrix whose rows run along its last dimension.
MatrixView Matrix(const TensorView& tensor) {
  const std::int64_t elements = NumElements(tensor.shape);
  const std::int64_t cols = tensor.shape.empty() || elements == 0 ? elements : tensor.shape.back();
  return {.dtype = tensor.dtype,
          .data = tensor.data,
          .rows = cols == 0 ? 0 : elements / cols,
          .cols = cols,
          .row_stride = cols * BitsPerElement(tensor.dtype) / 8};
}

// "[3, 17]": the multi-dimensional index of element `flat`.
std::string IndexOf(std::int64_t flat, const Shape& shape) {
  Shape index(shape.size());
  for (std::size_t d = shape.size(); d-- > 0; flat /= shape[d]) index[d] = flat % shape[d];
  return ToString(index);
}

std::string What(const std::string& name, const TensorView& tensor) {
  return "'" + name + "' (" + Describe(tensor.dtype, tensor.shape) + "): ";
}

}  // namespace

void CheckHasBytes(const std::string& name, const TensorView& tensor) {
  if (tensor.data != nullptr || tensor.num_bytes() == 0) return;
  throw Error(ErrorCode::kInvalidArgument, What(name, tensor) + "expected the address of its bytes, got null");
}

void CheckReadable(const std::string& name, const TensorView& tensor) {
  if (tensor.device.kind != Device::Kind::kHost) {
    throw Error(ErrorCode::kUnsupported, What(name, tensor) + "expected host memory, got CUDA device " +
                                             std::to_string(tensor.device.index) + ": copy it to the host first");
  }
  CheckHasBytes(name, tensor);
}

void ThrowNonFinite(const std::string& name, const TensorView& tensor, std::int64_t element) {
  throw Error(ErrorCode::kCorrupt,
              What(name, tensor) + "expected finite values, got NaN or infinity at " + IndexOf(element, tensor.shape));
}

TensorSummary SummaryOf(const std::string& name, const TensorView& tensor, WorkerPool& pool) {
  CheckReadable(name, tensor);
  const ScanResult scan = Scan(Matrix(tensor), pool);
  if (scan.first_non_finite >= 0) ThrowNonFinite(name, tensor, scan.first_non_finite);
  return {.digest = DigestOf({tensor.data, static_cast<std::size_t>(tensor.num_bytes())}, pool), .amax = scan.amax};
}

ManifestEntry EntryOf(const std::string& name, const TensorView& tensor, WorkerPool& pool) {
  const TensorSummary summary = SummaryOf(name, tensor, pool);
  return {.spec = {.name = name, .dtype = tensor.dtype, .shape = tensor.shape},
          .digest = summary.digest,
          .amax = summary.amax};
}

}  // namespace layercast
