// The smallest engine of your own: at every Enter, its buffers (column-major, as some kernels want them) are filled in
// place with a publisher's newest version.
//   minimal_receiver tcp://127.0.0.1:41234 examples/checkpoint_flip/add
#include <cstddef>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "layercast/model/registry.h"
#include "layercast/receiver.h"

namespace {

// The engine's memory. A real engine has it already, and knows names and shapes; here they are read off the module
// tree.
struct Engine {
  std::vector<std::vector<std::byte>> memory;
  std::vector<layercast::CapturedBuffer> table;

  void Allocate(const layercast::Module& module, const std::string& path) {
    for (const layercast::Parameter& parameter : module.parameters()) {
      const layercast::Shape& shape = parameter.spec.shape;
      memory.emplace_back(static_cast<std::size_t>(parameter.spec.num_bytes()));
      table.push_back({.name = path + parameter.spec.name,
                       .address = memory.back().data(),
                       .dtype = parameter.spec.dtype,
                       .shape = shape,
                       .strides = shape.size() == 2 ? layercast::Shape{1, shape[0]} : layercast::Shape{1},
                       .device = {}});
    }
    for (const auto& [name, child] : module.children()) Allocate(*child, path + name + ".");
  }
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::cerr << "usage: minimal_receiver PUBLISHER MODEL\n";
    return 2;
  }
  auto model = layercast::ModelRegistry::Builtin().Build(layercast::ModelDescription::FromDirectory(argv[2]), {});
  Engine engine;
  engine.Allocate(*model, "");
  layercast::Receiver receiver(std::move(model), {.tp_rank = 0, .tp_size = 1}, {.recipe = "none"},
                               layercast::CapturedBuffers::Adopt(engine.table));
  std::string enter;
  do {
    const layercast::ReloadReport report = receiver.ReloadWeights(layercast::FromPublisher(argv[1]));
    std::cout << report.version.ToString() << ": " << report.bytes << " bytes over " << report.channel << " in "
              << report.total_ms << " ms, serving " << report.served_digest.ToHex() << std::endl;
  } while (std::getline(std::cin, enter));
} catch (const layercast::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
