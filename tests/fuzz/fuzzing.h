// Drives whatever reads bytes from outside with bytes that were right and are damaged, beginning from a corpus that is
// kept: tests/fuzz/corpus/NAME.hex has an input a line. Used by the tests of this folder.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/fuzz_inputs.h"

namespace layercast {

struct FuzzTarget {
  std::string name;
  std::vector<std::string> seeds;  // beside the corpus
  std::string_view likely;         // bytes that mean something to what reads them
  // What becomes of an input: "" if it was taken, or why it was refused. Fails the test if neither may be.
  std::function<std::string(const std::string& input)> take;
};

// Value.
struct Fuzzed {
  std::size_t accepted = 0;
  std::size_t outcomes = 0;  // in how many ways inputs ended, numbers and quotations aside
};

// Gives the target its seeds and its corpus as they are, and then damaged, FuzzInputs(usual) in all. An input that ends
// as none before it did is damaged further; with LAYERCAST_FUZZ_KEEP it is also added to the corpus. The input of a
// failure, or of a crash, is left in a file: once that is mended, its line belongs into the corpus.
Fuzzed Fuzz(const FuzzTarget& target, std::size_t usual);

// A copy of the exact size on the heap, so that the address sanitizer sees a read past it.
std::vector<std::byte> ExactBytes(const std::string& input);

}  // namespace layercast
