// The names of `--load-format`, in one table: which loader reads each, and what to use instead of those that are not
// supported. The program, engines and publishers look names up in it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/checkpoint/loader.h"

namespace layercast {

// Value.
struct LoadFormat {
  enum class ReadBy : std::uint8_t {
    kLoader,   // read by the loader that `make` makes
    kAny,      // read by whichever loader finds files of its own
    kEngine,   // read by engines alone: it has no checkpoint tensors
    kNothing,  // not supported; `what` says what to use instead
  };
  std::string_view name;
  ReadBy read_by;
  std::string_view what;
  std::unique_ptr<const Loader> (*make)() = nullptr;
};

// All formats. Those that have a loader are in the order in which `auto` tries them.
std::span<const LoadFormat> AllLoadFormats();

// Throws kUnsupported for a format that is not supported, and kInvalidArgument, listing the known ones, for any other
// name.
const LoadFormat& LoadFormatNamed(std::string_view name);

// The loader that reads a folder with files of these names, or one file: the format's own, or for `auto` the first that
// finds something. Null if none does. Throws what LoadFormatNamed throws, and kUnsupported for a format that engines
// alone read.
std::unique_ptr<const Loader> ChooseLoader(std::string_view format, const std::vector<std::string>& names);

// Those of a folder's files that some loader would read.
std::vector<std::string> WeightFiles(const std::vector<std::string>& names);

}  // namespace layercast
