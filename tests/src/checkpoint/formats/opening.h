// What opening a checkpoint gives: its names, or the error. Header-only.
#pragma once

#include <string>
#include <vector>

#include "src/checkpoint/formats/checkpoint.h"
#include "tests/support/error_of.h"

namespace layercast::testing {

// `source`: a path, or a CheckpointSource.
template <typename Source>
std::string OpenError(ErrorCode code, const Source& source) {
  return ErrorOf([&] { Checkpoint::Open(source); }, code);
}
inline std::string OpenError(ErrorCode code, const CheckpointSource& source) {
  return ErrorOf([&] { Checkpoint::Open(source); }, code);
}

inline std::vector<std::string> Names(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const TensorSpec& spec : checkpoint.specs()) names.push_back(spec.name);
  return names;
}

}  // namespace layercast::testing
