#include "src/tensor/manifest/manifest_entry.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "layercast/error.h"
#include "src/base/digest/digest_all.h"
#include "src/tensor/kernels/scan.h"

namespace layercast {
namespace {

ScanResult ScanRun(DType dtype, const std::byte* data, std::int64_t elements) {
  return Scan({.dtype = dtype, .data = data, .rows = 1, .cols = elements, .row_stride = 0});
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

// Each share of the bytes is scanned and digested while it is in a cache. Shares begin with whole elements of any type.
TensorSummary SummaryOf(const std::string& name, const TensorView& tensor, WorkerPool& pool) {
  CheckReadable(name, tensor);
  const std::span bytes(tensor.data, static_cast<std::size_t>(tensor.num_bytes()));
  const std::int64_t elements = NumElements(tensor.shape);
  const std::int64_t of_share = std::int64_t{kLeavesOfShare * kLeafBytes} * 8 / BitsPerElement(tensor.dtype);
  std::vector<ScanResult> scans(NumLeaves(bytes.size()) / kLeavesOfShare + 1);
  const auto digest_leaves = [&](std::size_t first, std::span<Digest> leaves) {
    const std::span<const std::byte> rest = bytes.subspan(first * kLeafBytes);
    const std::span<const std::byte> share = rest.first(std::min(leaves.size() * kLeafBytes, rest.size()));
    const std::size_t number = first / kLeavesOfShare;
    const std::int64_t before = static_cast<std::int64_t>(number) * of_share;
    scans[number] = ScanRun(tensor.dtype, share.data(), std::min(of_share, elements - before));
    DigestLeaves(share, leaves);
  };
  TensorSummary summary{.digest = DigestInShares(bytes.size(), digest_leaves, pool), .amax = 0};
  for (std::size_t i = 0; i < scans.size(); ++i) {
    const std::int64_t wrong = scans[i].first_non_finite;
    if (wrong >= 0) ThrowNonFinite(name, tensor, static_cast<std::int64_t>(i) * of_share + wrong);
    summary.amax = std::max(summary.amax, scans[i].amax);
  }
  return summary;
}

ManifestEntry EntryOf(const std::string& name, const TensorView& tensor, WorkerPool& pool) {
  const TensorSummary summary = SummaryOf(name, tensor, pool);
  return {.spec = {.name = name, .dtype = tensor.dtype, .shape = tensor.shape},
          .digest = summary.digest,
          .amax = summary.amax};
}

}  // namespace layercast
