// Reads how weights are stored from the fields of a `quantization_config`. Used where that is parsed.
#pragma once

#include <optional>
#include <string>

#include "engine_side/model/config/config_fields.h"
#include "layercast/model/quantized_form.h"

namespace layercast {

// A form, or why there is none: the field whose value is not supported, as in "quantization_config.bits: expected 8,
// got 4". Value.
struct StoredForm {
  std::optional<QuantizedForm> form{};
  std::string why_not{};
};

// The form of all weights, for a `quant_method` that has a single form. Throws kInvalidArgument naming a field whose
// value is impossible.
StoredForm FormOf(const std::string& method, const ConfigFields& config);

// The form of the weights of one group of compressed-tensors' `config`. `name` begins the names of the group's fields.
StoredForm FormOfGroup(const ConfigFields& group, const std::string& name, const ConfigFields& config);

// The form by ModelOpt: `config` has the `quant_algo` of all weights, or of one module's.
StoredForm FormOfModelOpt(const ConfigFields& config);
// ModelOpt's `quant_algo`, in capitals. ModelOpt itself writes some names only in lower case, such as "fp8_pb_wo".
std::string ModelOptAlgorithm(const ConfigFields& config);

}  // namespace layercast
