#include "engine_side/reload/prequantized/scales_of_expert.h"

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine_side/model/naming/path.h"
#include "engine_side/reload/prequantized/quantized_scales.h"
#include "engine_side/reload/work/check_scales.h"
#include "layercast/error.h"

namespace layercast {
namespace {

// The expert's number: 3 for "experts.3.up_proj.weight". The layer has accepted the name, so it has a number.
std::int64_t ExpertOf(const QuantizedLayer::Part& part) {
  const std::string_view number = LastName(ParentPath(ParentPath(part.name)));
  std::int64_t expert = 0;
  std::from_chars(number.data(), number.data() + number.size(), expert);
  return expert;
}

// How many rows of blocks an expert has in the stack, in which gate and up are one matrix.
std::int64_t RowsOfExpert(const QuantizedLayer::Part& part, const Shape& own) {
  return part.shard_id == "w2" ? own[0] : 2 * own[0];
}

}  // namespace

void CheckScalesOfExpert(const Checkpoint& checkpoint, const QuantizedLayer& layer, const QuantizedLayer::Part& part) {
  const QuantizedScales scales(checkpoint, layer);
  const Shape own = scales.ShapeOf(part);
  const std::int64_t expert = ExpertOf(part);
  const std::int64_t rows = RowsOfExpert(part, own);
  const TensorSpec& spec = checkpoint.specs()[part.scale];
  if (spec.shape.size() != 3 || spec.shape[0] <= expert || spec.shape[1] != rows || spec.shape[2] != own[1]) {
    throw Error(ErrorCode::kInvalidArgument, "layer " + layer.path + ": '" + spec.name + "' expected scales [" +
                                                 std::to_string(rows) + ", " + std::to_string(own[1]) +
                                                 "] of each expert, of " + std::to_string(expert) + " too, got " +
                                                 Describe(spec));
  }
  scales.CheckNumbers(part.scale);
}

std::vector<float> ScalesOfExpert(const Checkpoint& checkpoint, const QuantizedLayer& layer,
                                  const QuantizedLayer::Part& part) {
  CheckScalesOfExpert(checkpoint, layer, part);
  const QuantizedScales scales(checkpoint, layer);
  const Shape own = scales.ShapeOf(part);
  const std::vector<float> all = scales.NumbersOf(part.scale);
  const std::int64_t count = own[0] * own[1];
  const auto first =
      all.begin() + ExpertOf(part) * RowsOfExpert(part, own) * own[1] + (part.shard_id == "w3" ? count : 0);
  std::vector<float> of_expert(first, first + count);
  CheckScales(of_expert, Sign::kNotNegative, layer.path, checkpoint.specs()[part.scale].name);
  return of_expert;
}

}  // namespace layercast
