// What an adapter's tensors are together: modules with their two factors, ranks and scales. Everything is checked that
// needs no model: names, pairs, ranks against the configuration, dtypes. Used by whoever loads or publishes an adapter,
// and by `layercast inspect`.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "layercast/adapter_config.h"
#include "layercast/error.h"
#include "layercast/tensor.h"

namespace layercast {

// Values.
struct AdapterModule {
  std::string path;          // in the Hugging Face model: "model.layers.0.self_attn.q_proj"
  std::string parameter;     // "gate_up_proj" or "down_proj" of a stack of experts; else empty
  std::string pattern_path;  // what patterns match: the path, or the path of the parameter that target_parameters names
  int wrapper = 0;           // of a stack: 1 is the inner of two wrappers
  bool embedding = false;
  std::uint32_t a = 0;  // indices of the specs: [rank, in] and [out, rank]
  std::uint32_t b = 0;  // of a stack: [experts * rank, in], and [out, rank * experts] whose columns are rank-major
  std::int64_t rank = 0;
  std::int64_t experts = 0;  // of a stack; 0: it is none
  float scale = 1;

  bool operator==(const AdapterModule&) const = default;
};

struct AdapterTensors {
  struct Copy {
    std::string path;  // of the module
    std::uint32_t tensor = 0;

    bool operator==(const Copy&) const = default;
  };
  struct Problem {
    ErrorCode code;
    std::string message;
  };

  std::vector<AdapterModule> modules;  // in natural order of their paths; of a stack the inner wrapper first
  std::vector<Copy> copies;            // of base weights (".base_layer.weight"): to be compared with what is served
  std::vector<std::string> unused;     // target_modules and target_parameters that no tensor is of
  std::vector<std::string> warnings;
  std::vector<Problem> problems;  // why the adapter would be refused
};

// Surveys an adapter, of which all problems are listed. Modules with a problem are left out.
AdapterTensors SurveyAdapter(std::span<const TensorSpec> specs, const AdapterConfig& config);
// The same of an adapter that has none. Throws the first problem, saying how many more there are.
AdapterTensors ReadAdapterTensors(std::span<const TensorSpec> specs, const AdapterConfig& config);

// What a stack of experts is checked against once the base is known: how many experts it has, and what the parameter
// takes and gives. Throws kInvalidArgument if the factors do not fit, and kUnsupported, naming both readings, if nobody
// can tell whether they were written before PEFT 0.19.1, which took in for out.
struct StackSizes {
  std::int64_t experts;
  std::int64_t in;
  std::int64_t out;
};
void CheckStack(const AdapterModule& module, std::span<const TensorSpec> specs, const AdapterConfig& config,
                const StackSizes& base);

}  // namespace layercast
