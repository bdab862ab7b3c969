#include "engine_side/reload/packed_experts.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "engine_side/quant/dequantize.h"
#include "layercast/error.h"
#include "src/tensor/value_tables.h"

namespace layercast {
namespace {

constexpr std::string_view kBlocks = "_blocks";
constexpr std::string_view kScales = "_scales";
constexpr std::int64_t kBlockColumns = 32;
constexpr std::int64_t kBlockBytes = 16;
constexpr std::int64_t kMostColumns = std::numeric_limits<std::int64_t>::max();
constexpr std::uint8_t kNaN = 0xFF;  // the only e8m0 code that is no power of two

bool HoldsBlocks(const TensorSpec& spec) {
  return spec.dtype == DType::kU8 && spec.name.ends_with(kBlocks) && spec.shape.size() == 4 &&
         spec.shape[3] == kBlockBytes && spec.shape[2] <= kMostColumns / kBlockColumns;
}

// Where they go once they are unpacked; an owner that is null: nowhere.
Resolution Resolve(const Module& model, const TensorSpec& unpacked) {
  try {
    return model.Resolve(unpacked);
  } catch (const Error&) {
    return {};  // the plan says what is wrong with it, and with all others
  }
}

}  // namespace

std::vector<PackedExperts> FindPackedExperts(const Module& model, std::span<const TensorSpec> specs) {
  std::unordered_map<std::string_view, std::uint32_t> index_of;
  for (std::uint32_t i = 0; i < specs.size(); ++i) {
    if (specs[i].name.ends_with(kScales)) index_of.emplace(specs[i].name, i);
  }
  std::vector<PackedExperts> found;
  for (std::uint32_t i = 0; i < specs.size(); ++i) {
    const TensorSpec& spec = specs[i];
    if (!HoldsBlocks(spec)) continue;
    TensorSpec unpacked{spec.name, DType::kBF16, {spec.shape[0], spec.shape[1], spec.shape[2] * kBlockColumns}};
    Resolution to = Resolve(model, unpacked);
    if (to.owner == nullptr || to.pieces.empty()) continue;
    unpacked.dtype = to.owner->parameters()[to.pieces.front().parameter].spec.dtype;

    const std::string name = spec.name.substr(0, spec.name.size() - kBlocks.size()) + std::string(kScales);
    const TensorSpec expected{name, DType::kU8, {spec.shape[0], spec.shape[1], spec.shape[2]}};
    const auto scales = index_of.find(name);
    const std::string what = "layer " + to.owner_path + ": '" + spec.name + "' is " + Describe(spec);
    if (scales == index_of.end()) {
      throw Error(ErrorCode::kInvalidArgument, what + ", and its scales, '" + name + "', are missing");
    }
    const TensorSpec& got = specs[scales->second];
    if (got.dtype != expected.dtype || got.shape != expected.shape) {
      throw Error(ErrorCode::kInvalidArgument,
                  what + ", and its scales: expected " + Describe(expected) + ", got " + Describe(got));
    }
    found.push_back({std::move(to.owner_path), i, scales->second, std::move(unpacked)});
  }
  return found;
}

void Unpack(const PackedExperts& experts, const NamedTensor& blocks, const NamedTensor& scales, std::byte* values,
            WorkerPool& pool) {
  const Shape& shape = experts.unpacked.shape;
  const auto* codes = reinterpret_cast<const std::uint8_t*>(scales.tensor.data);
  const std::span all(codes, static_cast<std::size_t>(scales.tensor.num_bytes()));
  if (const auto nan = std::ranges::find(all, kNaN); nan != all.end()) {
    throw Error(ErrorCode::kCorrupt, "layer " + experts.path + ": '" + scales.name +
                                         "' expected powers of two, got NaN at element " +
                                         std::to_string(nan - all.begin()));
  }
  QuantizedWeight weight{.codes = reinterpret_cast<const std::uint8_t*>(blocks.tensor.data),
                         .rows = shape[0] * shape[1],
                         .cols = shape[2],
                         .scales = {},
                         .block_rows = 1,
                         .block_cols = kBlockColumns,
                         .elements = DType::kF4};
  weight.scales.reserve(all.size());
  for (const std::uint8_t code : all) weight.scales.push_back(GetValueTables().f8_e8m0[code]);
  Dequantize(weight, experts.unpacked.dtype, values, pool);
}

}  // namespace layercast
