// Lets Python hold this reader and writer against the reference implementation:
//   checkpoint_driver copy IN OUT [as_given]  reads a checkpoint, writes its tensors (and a single file's metadata) to
//   OUT checkpoint_driver check FILE...           a line a file: "FILE refused", or "FILE name dtype begin end name
//   ..."
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/error.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/safetensors_file.h"
#include "src/checkpoint/safetensors_writer.h"

namespace layercast {
namespace {

void Copy(const std::string& from, const std::string& to, SafetensorsWriter::Order order) {
  const Checkpoint checkpoint = Checkpoint::Open(from);
  SafetensorsWriter::Metadata metadata;
  if (std::filesystem::is_regular_file(from)) metadata = SafetensorsFile(from).metadata();
  SafetensorsWriter writer(to, checkpoint.specs(), metadata, order);
  const auto weights = checkpoint.Weights();
  while (const auto named = weights->Next()) {
    writer.Write(named->name, {named->tensor.data, static_cast<std::size_t>(named->tensor.num_bytes())});
  }
  writer.Commit();
}

void Check(const std::string& path) {
  std::cout << path;
  try {
    const SafetensorsFile file(path);
    for (const auto& tensor : file.tensors()) {
      std::cout << ' ' << tensor.spec.name << ' ' << SafetensorsName(tensor.spec.dtype) << ' ' << tensor.begin << ' '
                << tensor.end;
    }
  } catch (const Error&) {
    std::cout << " refused";
  }
  std::cout << '\n';
}

int Main(const std::vector<std::string>& arguments) {
  if (arguments.size() >= 3 && arguments[0] == "copy") {
    const bool as_given = arguments.size() > 3 && arguments[3] == "as_given";
    Copy(arguments[1], arguments[2],
         as_given ? SafetensorsWriter::Order::kAsGiven : SafetensorsWriter::Order::kAligned);
    return 0;
  }
  if (!arguments.empty() && arguments[0] == "check") {
    for (std::size_t i = 1; i < arguments.size(); ++i) Check(arguments[i]);
    return 0;
  }
  return 2;
}

}  // namespace
}  // namespace layercast

int main(int argc, char** argv) {
  try {
    return layercast::Main({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
