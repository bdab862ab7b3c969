// The names of `--load-format`, in one table: which loader reads each, and what to use instead of those that nobody
// reads here. The program, engines and publishers look names up in it.
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
    kLoader,   // `make` makes it
    kAny,      // whichever loader finds files of its own
    kEngine,   // an engine alone: there are no checkpoint tensors in it
    kNothing,  // left out: `what` says what to use instead
  };
  std::string_view name;
  ReadBy read_by;
  std::string_view what;
  std::unique_ptr<const Loader> (*make)() = nullptr;
};

// In the order in which `auto` tries those that have a loader.
std::span<const LoadFormat> AllLoadFormats();

// Throws kUnsupported for one that is left out, kInvalidArgument listing those known for any other name.
const LoadFormat& LoadFormatNamed(std::string_view name);

// The loader that reads a folder with files of these names, or one file: the format's own, or the first that finds
// something. Throws as LoadFormatNamed, and kUnsupported for a format that engines alone read; null: nothing was found.
std::unique_ptr<const Loader> ChooseLoader(std::string_view format, const std::vector<std::string>& names);

// Those of a folder's files that any loader would read.
std::vector<std::string> WeightFiles(const std::vector<std::string>& names);

}  // namespace layercast
