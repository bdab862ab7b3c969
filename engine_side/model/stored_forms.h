// How weights are stored, as the fields of a `quantization_config` spell it. Used where one is read.
#pragma once

#include <optional>
#include <string>

#include "engine_side/model/config_fields.h"
#include "layercast/model/quantized_form.h"

namespace layercast {

// A form, or the field that has none here: "quantization_config.bits: expected 8, got 4". Value.
struct StoredForm {
  std::optional<QuantizedForm> form{};
  std::string why_not{};
};

// Of all weights, by a `quant_method` that has one form. Throws kInvalidArgument naming a field that cannot be.
StoredForm FormOf(const std::string& method, const ConfigFields& config);

// By compressed-tensors, of the weights of one of `config`'s groups, whose fields begin with `name`.
StoredForm FormOfGroup(const ConfigFields& group, const std::string& name, const ConfigFields& config);

// By ModelOpt: `config` has the `quant_algo` of all weights, or of one module's.
StoredForm FormOfModelOpt(const ConfigFields& config);
// Which, in capitals: it writes names that it has no other spelling for in lower case, "fp8_pb_wo".
std::string ModelOptAlgorithm(const ConfigFields& config);

}  // namespace layercast
