#include "engine_side/adapters/load/base_copies.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine_side/model/naming/path.h"
#include "layercast/error.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

constexpr const char* kLayer = "adapter_base_copies";

// The box of a contiguous matrix, row by row.
std::vector<std::byte> RowsOf(const std::vector<std::byte>& matrix, const CapturedBuffer& of, const Box& within) {
  const auto size = static_cast<std::size_t>(BitsPerElement(of.dtype)) / 8;
  const auto at = [](std::int64_t value) { return static_cast<std::size_t>(value); };
  std::vector<std::byte> rows;
  for (std::int64_t row = within.begin[0]; row < within.begin[0] + within.extent[0]; ++row) {
    const auto* from = matrix.data() + (at(row) * at(of.shape[1]) + at(within.begin[1])) * size;
    rows.insert(rows.end(), from, from + at(within.extent[1]) * size);
  }
  return rows;
}

}  // namespace

BaseCopies::BaseCopies(const Module& base, const OfferedAdapter& offered, const CapturedBuffers& served,
                       Recording& recording)
    : served_(served) {
  for (const AdapterTensors::Copy& copy : offered.adapter.copies) {
    const std::uint32_t source = offered.of_adapter[copy.tensor];
    TensorSpec weight = offered.own[copy.tensor];
    weight.name = JoinPath(copy.path, "weight");
    for (const auto& [view, to] : base.ResolveSource(weight)) {
      for (const PlacedPiece& piece : to.pieces) {
        const std::string name = JoinPath(to.owner_path, to.owner->parameters()[piece.parameter].spec.name);
        const CapturedBuffer* const buffer = served.Find(name);
        const bool plain = buffer != nullptr && buffer->shape.size() == 2 &&
                           buffer->dtype == to.owner->parameters()[piece.parameter].spec.dtype;
        if (!plain) {
          throw Error(ErrorCode::kUnsupported, Quote(offered.own[copy.tensor].name) +
                                                   ": a copy of a weight that this engine serves quantized cannot be "
                                                   "compared with it");
        }
        Add(offered.own[copy.tensor].name, source, *buffer, piece, recording);
      }
    }
  }
}

void BaseCopies::Add(const std::string& tensor, std::uint32_t source, const CapturedBuffer& buffer,
                     const PlacedPiece& piece, Recording& recording) {
  const Shape shape = {piece.destination.extent[0], piece.destination.extent[1]};
  const std::string name = JoinPath(kLayer + std::to_string(source), "part" + std::to_string(parts_.size()));
  recording.copies.push_back({.source = source,
                              .parameter = static_cast<std::uint32_t>(recording.parameters.size()),
                              .from = piece.source,
                              .to = Box::Whole(shape)});
  recording.parameters.push_back({.spec = {name, buffer.dtype, shape}});
  parts_.push_back(
      {tensor, &buffer, piece.destination, Buffer(host_, static_cast<std::size_t>(NumBytes(buffer.dtype, shape)))});
  buffers_.push_back({.name = name, .address = parts_.back().memory.data(), .dtype = buffer.dtype, .shape = shape});
}

void BaseCopies::Check() const {
  for (const Part& part : parts_) {
    const std::vector<std::byte> now = RowsOf(served_.Read(*part.served), *part.served, part.within);
    if (std::ranges::equal(now, part.memory.span())) continue;
    throw Error(ErrorCode::kInvalidArgument,
                Quote(part.tensor) + " is not what this engine serves of " + Quote(part.served->name) +
                    ": the base was trained too, or is another one, and the adapter alone would not answer as it does");
  }
}

}  // namespace layercast
