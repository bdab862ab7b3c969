// Recipes by themselves: a weight [rows, columns] to kernel tensors, and back.
#include <cstddef>

#include "engine_side/quant/recipes/recipe_table.h"
#include "layercast/error.h"
#include "python/native/native.h"
#include "python/native/python_tensors.h"
#include "python/native/waits.h"
#include "src/base/threads/worker_pool.h"

namespace layercast::python {
namespace {

// Memory of a kernel tensor that Python sees. Its values come from the recipe.
NamedTensor Allocate(const TensorSpec& spec) {
  auto memory = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(spec.num_bytes()));
  std::byte* data = memory->data();
  return {.name = spec.name,
          .tensor = {.dtype = spec.dtype, .shape = spec.shape, .data = data},
          .owner = std::move(memory)};  // the other owner is the Python object
}

std::byte* DataOf(const NamedTensor& tensor) { return const_cast<std::byte*>(tensor.tensor.data); }  // Allocate's

MatrixView MatrixOf(const NamedTensor& weight) {
  const Shape& shape = weight.tensor.shape;
  if (shape.size() != 2) {
    throw Error(ErrorCode::kInvalidArgument, "'" + weight.name + "': a recipe takes a weight [rows, columns], got " +
                                                 Describe(weight.tensor.dtype, shape));
  }
  return AsMatrix({.name = weight.name, .dtype = weight.tensor.dtype, .shape = shape}, weight.tensor.data);
}

void CheckThreads(std::size_t threads) {
  if (threads >= 1 && threads <= 1024) return;
  throw Error(ErrorCode::kInvalidArgument, "threads: expected 1 to 1024, got " + std::to_string(threads));
}

nb::list Quantize(nb::handle tensor, const std::string& name, bool power_of_two_scales, std::size_t threads) {
  CheckThreads(threads);
  const NamedTensor weight = TensorFrom("weight", tensor);
  const MatrixView matrix = MatrixOf(weight);
  const auto recipe = MakeRecipe(name, {.power_of_two_scales = power_of_two_scales});
  std::vector<NamedTensor> outputs;
  std::vector<KernelTensorView> views;
  for (const TensorSpec& spec : recipe->KernelTensors(matrix.dtype, matrix.rows, matrix.cols)) {
    const NamedTensor& output = outputs.emplace_back(Allocate(spec));
    views.push_back(KernelTensorView::Of(spec.shape, DataOf(output)));
  }
  {
    const GilReleased released;
    WorkerPool pool(threads);
    recipe->Quantize(matrix, 0, {}, views, pool);
  }
  return ListOf(outputs);
}

std::vector<NamedTensor> TensorsOf(const nb::list& tensors, const std::vector<TensorSpec>& specs) {
  std::vector<NamedTensor> read;
  if (nb::len(tensors) != specs.size()) {
    throw Error(ErrorCode::kInvalidArgument, "expected " + std::to_string(specs.size()) + " kernel tensors, got " +
                                                 std::to_string(nb::len(tensors)));
  }
  for (const TensorSpec& spec : specs) {
    const NamedTensor& tensor = read.emplace_back(TensorFrom(spec.name, tensors[read.size()]));
    if (tensor.tensor.dtype != spec.dtype || tensor.tensor.shape != spec.shape) {
      throw Error(ErrorCode::kInvalidArgument, "'" + spec.name + "': expected " + Describe(spec) + ", got " +
                                                   Describe(tensor.tensor.dtype, tensor.tensor.shape));
    }
  }
  return read;
}

// `tensors` are those that Quantize returned; `dtype` and the shape are the weight's.
nb::object Dequantized(const nb::list& tensors, const std::string& name, const std::string& dtype_name,
                       std::int64_t rows, std::int64_t cols, std::size_t threads) {
  CheckThreads(threads);
  const auto recipe = MakeRecipe(name);
  if (name == "none") throw Error(ErrorCode::kInvalidArgument, "recipe none quantizes nothing");
  const std::optional<DType> dtype = DTypeFromTorch(dtype_name);
  if (!dtype || (*dtype != DType::kF32 && *dtype != DType::kBF16 && *dtype != DType::kF16)) {
    throw Error(ErrorCode::kInvalidArgument, "dtype: expected float32, bfloat16 or float16, got " + dtype_name);
  }
  const std::vector<NamedTensor> read = TensorsOf(tensors, recipe->KernelTensors(*dtype, rows, cols));
  std::vector<KernelTensorView> views;
  for (const NamedTensor& tensor : read) views.push_back(KernelTensorView::Of(tensor.tensor.shape, DataOf(tensor)));
  const NamedTensor weight = Allocate({.name = "weight", .dtype = *dtype, .shape = {rows, cols}});
  {
    const GilReleased released;
    WorkerPool pool(threads);
    Dequantize(recipe->Read(views), *dtype, DataOf(weight), pool);
  }
  return BytesOf(weight);
}

}  // namespace

void BindQuantize(nb::module_& module) {
  module.def("known_recipes", KnownRecipes);
  module.def("quantize", Quantize, nb::arg("weight").none(), nb::arg("recipe"), nb::arg("power_of_two_scales"),
             nb::arg("threads"));
  module.def("dequantize", Dequantized, nb::arg("tensors"), nb::arg("recipe"), nb::arg("dtype"), nb::arg("rows"),
             nb::arg("columns"), nb::arg("threads"));
}

}  // namespace layercast::python
