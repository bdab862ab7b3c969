#include "python/native/given/recording.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "layercast/error.h"

namespace layercast::python {
namespace {

using PythonBox = std::pair<Shape, Shape>;

Box BoxFrom(const PythonBox& given) {
  const auto& [begin, extent] = given;
  if (begin.size() != extent.size() || begin.size() > Box::kMaxRank) {
    throw Error(ErrorCode::kInvalidArgument, "a box: expected as many begins as extents, at most " +
                                                 std::to_string(Box::kMaxRank) + ", got " + ToString(begin) + " and " +
                                                 ToString(extent));
  }
  Box box;
  box.rank = static_cast<std::uint8_t>(begin.size());
  std::ranges::copy(begin, box.begin.begin());
  std::ranges::copy(extent, box.extent.begin());
  return box;
}

DType DTypeNamed(const std::string& name) {
  if (const std::optional<DType> dtype = DTypeFromSafetensors(name)) return *dtype;
  throw Error(ErrorCode::kUnsupported, "a recording: expected a dtype that Layercast has, got '" + name + "'");
}

template <typename Row>
std::vector<Row> RowsOf(const nb::dict& recorded, const char* name) {
  std::vector<Row> rows;
  if (!recorded.contains(name) || !nb::try_cast(nb::borrow(recorded[name]), rows)) {
    throw Error(ErrorCode::kInvalidArgument, std::string("a recording: expected a list of tuples as '") + name + "'");
  }
  return rows;
}

}  // namespace

Recording RecordingFrom(const nb::dict& recorded) {
  Recording recording;
  for (auto& [name, dtype, shape] : RowsOf<std::tuple<std::string, std::string, Shape>>(recorded, "sources")) {
    recording.sources.push_back({std::move(name), DTypeNamed(dtype), std::move(shape)});
  }
  using ParameterRow = std::tuple<std::string, std::string, Shape, bool, std::vector<PythonBox>>;
  for (auto& [name, dtype, shape, quantize, zeros] : RowsOf<ParameterRow>(recorded, "parameters")) {
    RecordedParameter& parameter = recording.parameters.emplace_back();
    parameter.spec = {std::move(name), DTypeNamed(dtype), std::move(shape)};
    parameter.quantize = quantize;
    for (const PythonBox& box : zeros) parameter.zeros.push_back(BoxFrom(box));
  }
  using CopyRow = std::tuple<std::uint32_t, std::uint32_t, PythonBox, PythonBox, bool>;
  for (const auto& [source, parameter, from, to, transposed] : RowsOf<CopyRow>(recorded, "copies")) {
    recording.copies.push_back({source, parameter, BoxFrom(from), BoxFrom(to), transposed});
  }
  return recording;
}

}  // namespace layercast::python
