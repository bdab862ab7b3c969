// A GGUF model that is split into files, model-00001-of-00003.gguf and so on: which part a file is, and where the
// others are. Used by the loader of `gguf`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "src/checkpoint/gguf/gguf_header.h"

namespace layercast {

// One part. Value.
class GgufSplit {
 public:
  // Which part the file is, as `header` says; nullopt: it is a whole model. Throws kCorrupt, with a message that begins
  // with `subject`, if the file's name says something else.
  static std::optional<GgufSplit> Of(const std::filesystem::path& file, const GgufHeader& header,
                                     const std::string& subject);

  bool IsFirst() const { return number_ == 0; }
  std::filesystem::path First() const { return Part(0); }

  // Called for the first part, whose header is `header`. Throws kNotFound, naming the first part that is missing, and
  // kCorrupt if the parts together hold another number of tensors than the header says.
  void CheckComplete(const GgufHeader& header, const std::string& subject) const;

 private:
  GgufSplit(std::uint64_t number, std::uint64_t count) : number_(number), count_(count) {}

  void CheckAllThere(const std::string& subject) const;
  std::uint64_t CountTensors() const;  // in all parts, none of which may be missing
  std::string Ending(std::uint64_t number) const;
  std::filesystem::path Part(std::uint64_t number) const { return stem_ + Ending(number); }

  std::uint64_t number_;  // of this part, from 0
  std::uint64_t count_;   // of all parts, two at least
  std::string stem_;      // what the paths of all parts begin with
};

}  // namespace layercast
