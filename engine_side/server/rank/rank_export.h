// Reads the served bytes of one rank back, to write them to files or to compare them with a cold load. Used by the rank
// process.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>

#include "layercast/captured_buffers.h"
#include "layercast/parallel.h"
#include "layercast/receiver.h"
#include "layercast/version.h"

namespace layercast {

class Module;

// Writes every captured buffer, row-major, to files `model-rank-{rank}-part-{part}.safetensors` labelled `version`.
// Returns {"files", "tensors", "bytes"}.
nlohmann::ordered_json ExportRank(const CapturedBuffers& captured, const std::string& directory,
                                  const ParallelConfig& parallel, const std::string& recipe, const Version& version);

// Loads the checkpoint cold, into buffers beside the served ones and with the noise of the receiver's norms, and
// compares the two. Returns {"tensors", "bytes", "differences": [{"rank", "tensor", "offset", "served", "expected"}],
// "noise"} with the first differing byte of each tensor. Throws kCancelled, between two tensors, once `stop` is
// requested.
nlohmann::ordered_json CompareRank(const Receiver& receiver, std::unique_ptr<Module> model, ParallelConfig parallel,
                                   const QuantizationConfig& quantization, const CheckpointSource& checkpoint,
                                   const std::stop_token& stop);

}  // namespace layercast
