// Stacked experts: a module whose one parameter holds a projection of all experts. PEFT wraps such parameters
// (target_parameters), one wrapper around the other, and has changed its mind about what is in and what is out. Used by
// the survey of an adapter.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "layercast/adapter_config.h"

namespace layercast {

bool IsStackOfExperts(std::string_view module_path);

// The names of its parameters that the configuration targets, from the inner wrapper out: gate_up_proj before
// down_proj, whatever their order in the list. Throws kUnsupported for parameters that are no projections.
std::vector<std::string> ParametersOfStack(const AdapterConfig& config, const std::string& module_path);

// What the writer of a file took the sizes of a stack for. Before 0.19.1, PEFT took [experts, out, in] for
// [experts, in, out].
enum class StackReading { kRight, kSwapped, kUnknown };
StackReading ReadingOf(std::string_view peft_version);

// "peft_version '0.18.1': ...": what both readings of a stack's factors are, to tell them apart in an error.
std::string DescribeReadings(const AdapterConfig& config);

}  // namespace layercast
