// The smallest trainer: weights in its own memory, published as a new version after every step (every Enter).
//   minimal_publisher examples/checkpoint_flip/add
#include <cstddef>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "layercast/publisher.h"

namespace {

struct Weight {
  layercast::TensorSpec spec;
  std::vector<std::byte> bytes;
};

std::vector<Weight> Initial(const std::string& checkpoint) {
  std::vector<Weight> weights;
  const auto iterator = layercast::Weights::FromCheckpoint(checkpoint).walk({});
  while (const auto tensor = iterator->Next()) {
    const layercast::TensorView& view = tensor->tensor;
    weights.push_back({{tensor->name, view.dtype, view.shape}, {view.data, view.data + view.num_bytes()}});
  }
  return weights;
}

void OptimizerStep(std::vector<Weight>& weights) {  // flips every sign of a bf16 model: enough for a new version
  for (Weight& weight : weights) {
    for (std::size_t i = 1; i < weight.bytes.size(); i += 2) weight.bytes[i] ^= std::byte{0x80};
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::cerr << "usage: minimal_publisher CHECKPOINT\n";
    return 2;
  }
  std::vector<Weight> weights = Initial(argv[1]);
  layercast::Publisher publisher({.endpoint = "tcp://127.0.0.1:0"});
  std::string enter;
  for (std::uint64_t step = 1; step == 1 || std::getline(std::cin, enter); ++step) {
    if (step > 1) OptimizerStep(weights);
    std::vector<layercast::NamedTensor> tensors;
    for (const Weight& w : weights) {
      tensors.push_back({w.spec.name, {w.spec.dtype, w.spec.shape, w.bytes.data(), {}}, nullptr});
    }
    const auto published = publisher.Publish({.lineage = "minimal", .step = step},
                                             layercast::Weights::Once({}, layercast::MakeWeightsIterator(tensors)));
    std::cout << published.version().ToString() << " at " << publisher.endpoint() << std::endl;
  }
} catch (const layercast::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
