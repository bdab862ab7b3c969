#include "engine_side/engine/torch/tensors/weight_tensor.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/stack.h>

#include <array>
#include <vector>

#include "engine_side/engine/torch/tensors/torch_type.h"
#include "engine_side/model/naming/scale_shape.h"
#include "src/base/check.h"
#include "src/tensor/value_tables.h"

namespace layercast {
namespace {

at::Tensor View(const std::byte* address, at::ScalarType type, at::IntArrayRef shape, const at::Device& device) {
  // Torch has no tensors of constant memory; nothing here writes to it.
  return at::for_blob(const_cast<std::byte*>(address), shape)
      .options(at::TensorOptions(type).device(device))
      .target_device(device)
      .make_tensor();
}

at::ScalarType ValueType(DType dtype) {
  const std::optional<at::ScalarType> type = TorchTypeOf(dtype == DType::kF4 ? DType::kU8 : dtype);
  LAYERCAST_CHECK(type);
  return *type;
}

at::ScalarType ScaleType(DType dtype) { return dtype == DType::kF8E8M0 ? at::kFloat8_e8m0fnu : ValueType(dtype); }

// Repeats each element `times` times along `dim` and cuts the result to `size`. A single element is left to
// broadcasting.
at::Tensor Spread(const at::Tensor& scales, std::int64_t dim, std::int64_t times, std::int64_t size) {
  if (times == 1 || scales.size(dim) == 1) return scales;
  std::vector<std::int64_t> shape = scales.sizes().vec();
  shape.insert(shape.begin() + dim + 1, times);
  return scales.unsqueeze(dim + 1).expand(shape).flatten(dim, dim + 1).narrow(dim, 0, size);
}

}  // namespace

WeightTensor::WeightTensor(const WeightView& view, const at::Device& device)
    : rows_(static_cast<std::int64_t>(view.rows)),
      cols_(static_cast<std::int64_t>(view.cols)),
      block_rows_(static_cast<std::int64_t>(view.scale.rows)),
      block_cols_(static_cast<std::int64_t>(view.scale.cols)),
      values_(View(view.values, ValueType(view.dtype), {rows_, view.dtype == DType::kF4 ? cols_ / 2 : cols_}, device)) {
  if (view.dtype == DType::kF4) {
    std::array<float, 16> table = GetValueTables().f4;
    f4_values_ = at::from_blob(table.data(), {16}, at::kFloat)
                     .to(device, at::kFloat, /*non_blocking=*/false,
                         /*copy=*/true);
  }
  if (view.scale.scales != nullptr) {
    scales_ = View(view.scale.scales, ScaleType(view.scale.dtype), ScaleShape(rows_, cols_, block_rows_, block_cols_),
                   device);
  }
  if (view.scale.global != nullptr) global_ = View(view.scale.global, at::kFloat, {1}, device);
}

at::Tensor WeightTensor::Read() const {
  const at::Tensor values = ReadValues();
  return scales_ ? values * ReadScales() : values;
}

at::Tensor WeightTensor::ReadRows(const at::Tensor& indices) const {
  if (scales_) return at::index_select(Read(), 0, indices);
  return at::index_select(values_, 0, indices).to(at::kFloat);
}

at::Tensor WeightTensor::ReadValues() const {
  if (!f4_values_) return values_.to(at::kFloat);
  const at::Tensor low = at::bitwise_and(values_, 15);
  const at::Tensor high = at::bitwise_right_shift(values_, 4);
  const at::Tensor codes = at::stack({low, high}, -1).flatten().to(at::kInt);
  return at::index_select(*f4_values_, 0, codes).view({rows_, cols_});
}

// The scales, [rows or 1, cols or 1]: where there is one scale, it is left to broadcasting.
at::Tensor WeightTensor::ReadScales() const {
  at::Tensor scales = scales_->to(at::kFloat);
  if (global_) scales = scales * *global_;
  return Spread(Spread(scales, 0, block_rows_, rows_), 1, block_cols_, cols_);
}

}  // namespace layercast
