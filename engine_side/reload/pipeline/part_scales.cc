#include "engine_side/reload/pipeline/part_scales.h"

#include <algorithm>
#include <cstring>

#include "engine_side/quant/kernel_tensors.h"
#include "layercast/model/quantized_form.h"
#include "src/tensor/cast.h"

namespace layercast {
void PartScales::Note(const Piece& piece, DType dtype, const RegionView& scales) {
  const Placement& placement = plan_.placements()[piece.placement];
  const std::size_t size = static_cast<std::size_t>(BitsPerElement(dtype)) / 8;
  std::vector<std::byte> packed(scales.num_bytes());
  Pack(scales, packed.data());
  std::vector<float> values(packed.size() / size);
  Cast(dtype, packed.data(), DType::kF32, reinterpret_cast<std::byte*>(values.data()), values.size());
  std::int64_t matrix = placement.destination.begin[0] + static_cast<std::int64_t>(piece.begin / size);
  for (const float value : values) scales_[placement.parameter][{matrix++, placement.shard_id}] = value;
}

void PartScales::Run(const PlannedLayer& layer) {
  for (std::uint32_t i = layer.first_parameter; i < layer.first_parameter + layer.num_parameters; ++i) {
    if (const auto scales = scales_.extract(i)) BringToLargest(i, scales.mapped());
  }
}

void PartScales::BringToLargest(std::uint32_t parameter, const Scales& scales) {
  std::map<std::int64_t, float> largest;  // by matrix
  for (const auto& [part, scale] : scales) {
    const auto [entry, is_first] = largest.try_emplace(part.first, scale);
    if (!is_first) entry->second = std::max(entry->second, scale);
  }
  const auto is_largest = [&](const auto& of_part) { return of_part.second == largest.at(of_part.first.first); };
  if (std::ranges::all_of(scales, is_largest)) return;
  const std::uint32_t weight = WeightOf(parameter);
  const std::map<Part, Rows> rows = RowsOf(weight);
  const std::span<std::byte> numbers = sink_.BytesOf(layout_.TensorsOf(parameter).front());
  for (const auto& of_part : scales) {
    if (is_largest(of_part)) continue;
    const auto& [part, scale] = of_part;
    const float& to = largest.at(part.first);
    if (const auto found = rows.find(part); found != rows.end()) {
      RescaleRows(weight, part.first, found->second, scale, to);
    }
    const std::size_t at = static_cast<std::size_t>(part.first) * sizeof(float);
    work_.Write(AsView(std::as_bytes(std::span(&to, 1))), numbers.subspan(at, sizeof(float)).data());
  }
}

// The weight that these scales belong to. Scales come behind their weight in the plan.
std::uint32_t PartScales::WeightOf(std::uint32_t parameter) const {
  while (plan_.parameters()[parameter].form == nullptr) --parameter;
  return parameter;
}

// The rows of each part. They are consecutive, also if they came in several tensors.
std::map<PartScales::Part, PartScales::Rows> PartScales::RowsOf(std::uint32_t weight) const {
  std::map<Part, Rows> rows;
  for (const Placement& placement : plan_.PlacementsInto(plan_.parameters()[weight])) {
    const Box& box = placement.destination;
    const std::size_t axis = box.rank - 2U;
    const Rows own{box.begin[axis], box.begin[axis] + box.extent[axis]};
    const std::int64_t first = axis == 0 ? 0 : box.begin[0];
    const std::int64_t count = axis == 0 ? 1 : box.extent[0];
    for (std::int64_t matrix = first; matrix < first + count; ++matrix) {
      Rows& all = rows.try_emplace({matrix, placement.shard_id}, own).first->second;
      all = {std::min(all.first, own.first), std::max(all.end, own.end)};
    }
  }
  return rows;
}

std::span<std::byte> PartScales::InSink(std::uint32_t parameter, std::int64_t matrix, const Rows& rows) const {
  const TensorSpec& spec = plan_.parameters()[parameter].spec;
  const MatrixStack stack = MatrixStack::Of(spec.shape);
  const std::int64_t row_bytes = stack.cols * BitsPerElement(spec.dtype) / 8;
  return sink_.BytesOf(layout_.TensorsOf(parameter).front())
      .subspan(static_cast<std::size_t>((matrix * stack.rows + rows.first) * row_bytes),
               static_cast<std::size_t>((rows.end - rows.first) * row_bytes));
}

void PartScales::RescaleRows(std::uint32_t weight, std::int64_t matrix, const Rows& rows, float from, float to) {
  const std::span<std::byte> codes = InSink(weight, matrix, rows);
  if (plan_.parameters()[weight].form->has_global_scale) {
    work_.RescaleNvfp4(codes, InSink(weight + 1, matrix, rows), from, to);
  } else {
    work_.Rescale(codes, from, to);
  }
}

}  // namespace layercast
