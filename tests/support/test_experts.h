// The tensors of a mixture's experts in every form that checkpoints have. The elements are the same whatever the form.
#pragma once

#include <cstdint>
#include <string>

#include "tests/support/test_weights.h"

namespace layercast::testing {

enum class ExpertForm {
  kPerExpert,        // 3.gate_proj.weight, 3.up_proj.weight, 3.down_proj.weight
  kMixtral,          // 3.w1.weight, 3.w3.weight, 3.w2.weight
  kFused,            // 3.gate_up_proj.weight, 3.down_proj.weight
  kFusedW13,         // 3.w13.weight, 3.w2.weight
  kStacked,          // gate_up_proj, down_proj
  kStackedOwnNames,  // w13_weight, w2_weight
  kTransposed,       // gate_up_proj, down_proj, each matrix transposed; only if a flag says so
  kInterleaved       // as kTransposed, and gate's and up's columns alternate; only if a flag says so
};
constexpr bool IsTransposed(ExpertForm form) {
  return form == ExpertForm::kTransposed || form == ExpertForm::kInterleaved;
}
constexpr ExpertForm kExpertForms[] = {ExpertForm::kPerExpert, ExpertForm::kMixtral, ExpertForm::kFused,
                                       ExpertForm::kFusedW13,  ExpertForm::kStacked, ExpertForm::kStackedOwnNames};

struct ExpertSizes {
  std::int64_t experts = 0;
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  bool bias = false;
};

enum class ExpertMatrix : std::uint8_t { kGate, kUp, kDown };

// The element of an expert's gate, up or down projection, or of its bias if `col` is -1. Some experts have larger
// elements than others.
float ExpertElement(std::uint32_t seed, ExpertMatrix matrix, std::int64_t expert, std::int64_t row, std::int64_t col);

// Appends the tensors. Their names begin with `path` ("experts").
void AddExperts(Weights& weights, const std::string& path, const ExpertSizes& sizes, ExpertForm form, DType dtype,
                std::uint32_t seed = 1);

}  // namespace layercast::testing
