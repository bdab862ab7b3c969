// What one rank of an engine is, as receivers of bases and of adapters are told it in keyword arguments. All of it
// needs the GIL.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "layercast/captured_buffer.h"
#include "layercast/model/module.h"
#include "layercast/parallel.h"
#include "layercast/receiver_options.h"
#include "python/native/native.h"

namespace layercast::python {

// The model of one rank: what its tree is built from, and how its weights are quantized. Value.
struct RankModel {
  std::string directory;               // empty: what was recorded
  std::optional<nb::dict> recorded{};  // what RecordingFrom reads
  ParallelConfig parallel{};
  QuantizationConfig quantization{};
};

RankModel ModelFrom(const nb::kwargs& options);
std::unique_ptr<Module> TreeOf(const RankModel& model);

ReceiverOptions ReceiverOptionsFrom(const nb::kwargs& options);

// The tensors of a dict by their names.
std::vector<CapturedBuffer> BuffersFrom(const nb::dict& tensors);

}  // namespace layercast::python
