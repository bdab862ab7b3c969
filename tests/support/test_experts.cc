#include "tests/support/test_experts.h"

#include <cmath>
#include <vector>

namespace layercast::testing {
namespace {

std::uint32_t Mixed(std::uint32_t hash, std::int64_t value) {
  hash = (hash ^ static_cast<std::uint32_t>(value)) * 0x9E3779B1U;
  return hash ^ (hash >> 15U);
}

// The matrices of one tensor, one over the other: gate over up, or just down.
using Stack = std::vector<ExpertMatrix>;

struct Tensor {
  std::string name, bias_name;
  Stack stack;
  std::vector<std::int64_t> experts;
  bool stacked = false;
  bool transposed = false;
  bool interleaved = false;  // one row of each matrix of the stack, then the next row of each
};

std::vector<float> Transposed(const std::vector<float>& values, std::int64_t matrices, std::int64_t rows,
                              std::int64_t cols) {
  std::vector<float> transposed;
  for (std::int64_t m = 0; m < matrices; ++m) {
    for (std::int64_t col = 0; col < cols; ++col) {
      for (std::int64_t row = 0; row < rows; ++row) {
        transposed.push_back(values[static_cast<std::size_t>((m * rows + row) * cols + col)]);
      }
    }
  }
  return transposed;
}

void AddTensor(Weights& weights, const ExpertSizes& sizes, DType dtype, std::uint32_t seed, const Tensor& tensor,
               bool bias) {
  const bool down = tensor.stack.front() == ExpertMatrix::kDown;
  const std::int64_t rows = down ? sizes.hidden : sizes.intermediate;
  const std::int64_t cols = bias ? 1 : down ? sizes.intermediate : sizes.hidden;
  const auto matrices = static_cast<std::int64_t>(tensor.stack.size());
  const std::int64_t all_rows = matrices * rows;
  std::vector<float> values;
  for (const std::int64_t expert : tensor.experts) {
    for (std::int64_t i = 0; i < all_rows; ++i) {
      const std::int64_t matrix = tensor.interleaved ? i % matrices : i / rows;
      const std::int64_t row = tensor.interleaved ? i / matrices : i % rows;
      for (std::int64_t col = 0; col < cols; ++col) {
        values.push_back(
            ExpertElement(seed, tensor.stack[static_cast<std::size_t>(matrix)], expert, row, bias ? -1 : col));
      }
    }
  }
  if (tensor.transposed && !bias)
    return weights.Add({tensor.name, dtype, {sizes.experts, cols, all_rows}},
                       Transposed(values, sizes.experts, all_rows, cols));
  Shape shape;
  if (tensor.stacked) shape.push_back(sizes.experts);
  shape.push_back(all_rows);
  if (!bias) shape.push_back(cols);
  weights.Add({bias ? tensor.bias_name : tensor.name, dtype, shape}, values);
}

std::vector<Tensor> TensorsOf(const std::string& path, const ExpertSizes& sizes, ExpertForm form) {
  const Stack gate = {ExpertMatrix::kGate}, up = {ExpertMatrix::kUp}, down = {ExpertMatrix::kDown};
  const Stack gate_up = {ExpertMatrix::kGate, ExpertMatrix::kUp};
  std::vector<Tensor> tensors;
  std::vector<std::int64_t> all;
  for (std::int64_t e = 0; e < sizes.experts; ++e) {
    all.push_back(e);
    const auto add = [&](const char* name, const Stack& stack) {
      const std::string whole = path + "." + std::to_string(e) + "." + name;
      tensors.push_back({whole + ".weight", whole + ".bias", stack, {e}});
    };
    switch (form) {
      case ExpertForm::kPerExpert: add("gate_proj", gate), add("up_proj", up), add("down_proj", down); break;
      case ExpertForm::kMixtral: add("w1", gate), add("w2", down), add("w3", up); break;
      case ExpertForm::kFused: add("gate_up_proj", gate_up), add("down_proj", down); break;
      case ExpertForm::kFusedW13: add("w13", gate_up), add("w2", down); break;
      default: break;
    }
  }
  if (form == ExpertForm::kStacked || IsTransposed(form)) {
    const bool interleaved = form == ExpertForm::kInterleaved;
    tensors = {
        {path + ".gate_up_proj", path + ".gate_up_proj_bias", gate_up, all, true, IsTransposed(form), interleaved},
        {path + ".down_proj", path + ".down_proj_bias", down, all, true, IsTransposed(form)}};
  } else if (form == ExpertForm::kStackedOwnNames) {
    tensors = {{path + ".w13_weight", path + ".w13_bias", gate_up, all, true},
               {path + ".w2_weight", path + ".w2_bias", down, all, true}};
  }
  return tensors;
}

}  // namespace

float ExpertElement(std::uint32_t seed, ExpertMatrix matrix, std::int64_t expert, std::int64_t row, std::int64_t col) {
  const std::uint32_t own = Mixed(Mixed(Mixed(seed, expert), static_cast<std::int64_t>(matrix)), 7);
  const std::uint32_t hash = Mixed(Mixed(own, row), col);
  const auto value = static_cast<float>(static_cast<std::int32_t>(hash)) * 0x1p-30F;
  return std::ldexp(value, static_cast<int>(own % 5) - 2);
}

void AddExperts(Weights& weights, const std::string& path, const ExpertSizes& sizes, ExpertForm form, DType dtype,
                std::uint32_t seed) {
  for (const Tensor& tensor : TensorsOf(path, sizes, form)) {
    AddTensor(weights, sizes, dtype, seed, tensor, false);
    if (sizes.bias) AddTensor(weights, sizes, dtype, seed, tensor, true);
  }
}

}  // namespace layercast::testing
