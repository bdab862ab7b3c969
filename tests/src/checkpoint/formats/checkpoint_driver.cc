// Lets Python hold this reader and writer against the reference implementation:
//   checkpoint_driver copy IN OUT [FORMAT]
//       reads a checkpoint, writes its tensors (and a single safetensors file's metadata) to OUT
//   checkpoint_driver config IN
//       what a checkpoint says of its model's configuration
//   checkpoint_driver check FILE...
//       a line a file: "FILE refused", or "FILE name dtype begin end name ..."
//   checkpoint_driver damage FILE FORMAT
//       FILE cut at every length and with every bit flipped: each is refused, or reads as FILE does. Prints how many of
//       either
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/error.h"
#include "src/checkpoint/formats/checkpoint.h"
#include "src/checkpoint/safetensors/safetensors_file.h"
#include "src/checkpoint/safetensors/safetensors_writer.h"

namespace layercast {
namespace {

void Copy(const std::string& from, const std::string& to, const std::string& format) {
  const Checkpoint checkpoint = Checkpoint::Open({.path = from, .load_format = format});
  SafetensorsWriter::Metadata metadata;
  if (from.ends_with(".safetensors")) metadata = SafetensorsFile(from).metadata();
  SafetensorsWriter writer(to, checkpoint.specs(), metadata);
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

// Everything that a file says, in a row.
std::string Contents(const std::string& path, const std::string& format) {
  std::string contents;
  const auto weights = Checkpoint::Open({.path = path, .load_format = format}).Weights();
  while (const auto named = weights->Next()) {
    const auto bytes = static_cast<std::size_t>(named->tensor.num_bytes());
    contents += named->name + " " + Describe(named->tensor.dtype, named->tensor.shape) + " ";
    if (bytes != 0) contents.append(reinterpret_cast<const char*>(named->tensor.data), bytes);
  }
  return contents;
}

// 0: refused. 1: reads as it should. Throws std::runtime_error where it reads as something else.
int ReadDamaged(const std::string& path, const std::string& bytes, const std::string& format,
                const std::string& expected, const std::string& how) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  try {
    if (Contents(path, format) == expected) return 1;
  } catch (const Error& error) {
    if (std::string_view(error.what()).find(path) != std::string_view::npos) return 0;
    throw std::runtime_error(how + ": does not name the file: " + error.what());
  }
  throw std::runtime_error(how + ": other tensors");
}

void DamageEverywhere(const std::string& original, const std::string& format) {
  const std::string expected = Contents(original, format);
  std::ifstream in(original, std::ios::binary);
  const std::string file{std::istreambuf_iterator<char>(in), {}};
  const std::string path = std::filesystem::path(original).replace_filename("damaged-" + format).string();
  for (std::size_t size = 0; size < file.size(); ++size) {
    const std::string how = "cut at " + std::to_string(size);
    if (ReadDamaged(path, file.substr(0, size), format, expected, how) != 0)
      throw std::runtime_error(how + ": is read");
  }
  int accepted = 0;
  for (std::size_t bit = 0; bit < file.size() * 8; ++bit) {
    std::string damaged = file;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    accepted += ReadDamaged(path, damaged, format, expected, "bit " + std::to_string(bit));
  }
  std::cout << file.size() << " cuts refused, " << accepted << " of " << file.size() * 8 << " bits mean nothing\n";
}

int Main(const std::vector<std::string>& arguments) {
  if (arguments.size() >= 3 && arguments[0] == "copy") {
    Copy(arguments[1], arguments[2], arguments.size() > 3 ? arguments[3] : "auto");
    return 0;
  }
  if (arguments.size() == 2 && arguments[0] == "config") {
    std::cout << Checkpoint::Open(arguments[1]).config() << '\n';
    return 0;
  }
  if (!arguments.empty() && arguments[0] == "check") {
    for (std::size_t i = 1; i < arguments.size(); ++i) Check(arguments[i]);
    return 0;
  }
  if (arguments.size() == 3 && arguments[0] == "damage") {
    DamageEverywhere(arguments[1], arguments[2]);
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
