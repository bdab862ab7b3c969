// Runs one recipe on a weight that comes on standard input, and writes its kernel tensors to standard output: how
// test_recipes.py compares recipes with torch.
//   recipe_driver RECIPE DTYPE ROWS COLS [pow2] [tensor_amax] [row_amax] [piece=N]
// Standard input: [tensor amax, one fp32] [row amax, ROWS fp32] the weight, row-major. piece=N: N rows at a time.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "engine_side/quant/recipe.h"
#include "engine_side/quant/recipes/recipe_table.h"
#include "layercast/error.h"

namespace layercast {
namespace {

struct Job {
  std::string recipe;
  DType dtype = DType::kF32;
  std::int64_t rows = 0, cols = 0, piece = 0;
  RecipeOptions options;
  bool tensor_amax = false, row_amax = false;
};

Job Parse(const std::vector<std::string>& arguments) {
  if (arguments.size() < 4) throw Error(ErrorCode::kInvalidArgument, "RECIPE DTYPE ROWS COLS ...");
  Job job;
  job.recipe = arguments[0];
  job.dtype = DTypeFromTorch(arguments[1]).value();
  job.rows = job.piece = std::stoll(arguments[2]);
  job.cols = std::stoll(arguments[3]);
  for (const std::string& word : std::span(arguments).subspan(4)) {
    if (word == "pow2") job.options.power_of_two_scales = true;
    if (word == "tensor_amax") job.tensor_amax = true;
    if (word == "row_amax") job.row_amax = true;
    if (word.starts_with("piece=")) job.piece = std::stoll(word.substr(6));
  }
  return job;
}

template <class Element>
std::vector<Element> Read(std::int64_t count) {
  std::vector<Element> elements(static_cast<std::size_t>(count));
  std::cin.read(reinterpret_cast<char*>(elements.data()),
                static_cast<std::streamsize>(elements.size() * sizeof(Element)));
  if (!std::cin) throw Error(ErrorCode::kInvalidArgument, "standard input ended too soon");
  return elements;
}

void Run(const Job& job) {
  const std::unique_ptr<const Recipe> recipe = MakeRecipe(job.recipe, job.options);
  const float tensor_amax = job.tensor_amax ? Read<float>(1)[0] : -1.0F;
  const std::vector<float> row_amax = Read<float>(job.row_amax ? job.rows : 0);
  const std::vector<std::byte> weight = Read<std::byte>(NumBytes(job.dtype, {job.rows, job.cols}));

  std::vector<std::vector<std::byte>> memory;
  std::vector<KernelTensorView> outputs;
  for (const TensorSpec& spec : recipe->KernelTensors(job.dtype, job.rows, job.cols)) {
    memory.emplace_back(static_cast<std::size_t>(spec.num_bytes()), std::byte{0xa5});
    outputs.push_back(KernelTensorView::Of(spec.shape, nullptr));
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) outputs[i].data = memory[i].data();

  WorkerPool pool(2);
  const std::int64_t row_bytes = NumBytes(job.dtype, {job.cols});
  for (std::int64_t first = 0; first < job.rows; first += job.piece) {
    const std::int64_t count = std::min(job.piece, job.rows - first);
    const MatrixView piece{job.dtype, weight.data() + first * row_bytes, count, job.cols, row_bytes};
    const AmaxInput amax{.tensor = tensor_amax, .rows = row_amax};
    recipe->Quantize(piece, first, amax, outputs, pool);
  }
  for (const std::vector<std::byte>& bytes : memory)
    std::cout.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace
}  // namespace layercast

int main(int argc, char** argv) {
  try {
    layercast::Run(layercast::Parse({argv + 1, argv + argc}));
    std::cout.flush();
  } catch (const layercast::Error& error) {
    std::cerr << layercast::ErrorCodeName(error.code()) << ": " << error.what() << "\n";
    return 1;
  }
  return 0;
}
