#include "engine_side/reload/prequantized/packed_experts.h"

#include <limits>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "engine_side/model/naming/code_names.h"
#include "engine_side/model/naming/path.h"
#include "engine_side/reload/work/checked_dequantize.h"
#include "layercast/error.h"
#include "src/tensor/value_tables.h"

namespace layercast {
namespace {

constexpr std::int64_t kBlockColumns = 32;
constexpr std::int64_t kBlockBytes = 16;
constexpr std::int64_t kMostColumns = std::numeric_limits<std::int64_t>::max();
constexpr std::uint8_t kNaN = 0xFF;  // the only e8m0 code that is no power of two

bool HoldsBlocks(const TensorSpec& spec) {
  return spec.dtype == DType::kU8 && spec.name.ends_with(kBlocksOfStack) && spec.shape.size() == 4 &&
         spec.shape[3] == kBlockBytes && spec.shape[2] <= kMostColumns / kBlockColumns;
}

// Where an unpacked expert goes. The owner is null if no layer takes it.
Resolution Resolve(const Module& model, const PackedExperts& experts) {
  try {
    return model.Resolve(experts.Unpacked(0));
  } catch (const Error&) {
    return {};  // the plan reports it, together with all other problems
  }
}

}  // namespace

TensorSpec PackedExperts::Unpacked(std::int64_t expert) const {
  const std::string_view module = ParentPath(name);
  const std::string_view own = std::string_view(name).substr(module.size() + (module.empty() ? 0 : 1));
  return {JoinPath(JoinPath(module, std::to_string(expert)), own), dtype, {rows, cols}};
}

std::vector<PackedExperts> FindPackedExperts(Module& model, std::span<const TensorSpec> specs) {
  std::unordered_map<std::string_view, std::uint32_t> index_of;
  for (std::uint32_t i = 0; i < specs.size(); ++i) {
    if (specs[i].name.ends_with(kScalesOfStack)) index_of.emplace(specs[i].name, i);
  }
  std::vector<PackedExperts> found;
  for (std::uint32_t i = 0; i < specs.size(); ++i) {
    const TensorSpec& spec = specs[i];
    if (!HoldsBlocks(spec)) continue;
    PackedExperts experts{.layer = nullptr,
                          .path = {},
                          .blocks = i,
                          .name = spec.name,
                          .count = spec.shape[0],
                          .rows = spec.shape[1],
                          .cols = spec.shape[2] * kBlockColumns};
    Resolution to = Resolve(model, experts);
    if (to.owner == nullptr || to.pieces.empty()) continue;
    experts.layer = dynamic_cast<QuantizableLayer*>(model.FindModule(to.owner_path));
    if (experts.layer == nullptr) continue;
    experts.dtype = to.owner->parameters()[to.pieces.front().parameter].spec.dtype;
    experts.path = std::move(to.owner_path);

    const std::string name =
        spec.name.substr(0, spec.name.size() - kBlocksOfStack.size()) + std::string(kScalesOfStack);
    const TensorSpec expected{name, DType::kU8, {spec.shape[0], spec.shape[1], spec.shape[2]}};
    const auto scales = index_of.find(name);
    const std::string what = "layer " + experts.path + ": '" + spec.name + "' is " + Describe(spec);
    if (scales == index_of.end()) {
      throw Error(ErrorCode::kInvalidArgument, what + ", and its scales, '" + name + "', are missing");
    }
    const TensorSpec& got = specs[scales->second];
    if (got.dtype != expected.dtype || got.shape != expected.shape) {
      throw Error(ErrorCode::kInvalidArgument,
                  what + ", and its scales: expected " + Describe(expected) + ", got " + Describe(got));
    }
    experts.scales = scales->second;
    found.push_back(std::move(experts));
  }
  return found;
}

void Unpack(const PackedExperts& experts, std::int64_t expert, const NamedTensor& blocks, const NamedTensor& scales,
            std::byte* values, WorkerPool& pool) {
  const std::int64_t count = experts.rows * experts.cols / kBlockColumns;  // of one expert
  const std::int64_t first = expert * count;
  const auto* codes = reinterpret_cast<const std::uint8_t*>(scales.tensor.data);
  QuantizedWeight weight{.codes = reinterpret_cast<const std::uint8_t*>(blocks.tensor.data) + first * kBlockBytes,
                         .rows = experts.rows,
                         .cols = experts.cols,
                         .scales = {},
                         .block_rows = 1,
                         .block_cols = kBlockColumns,
                         .elements = DType::kF4};
  weight.scales.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = first; i < first + count; ++i) {
    if (codes[i] == kNaN) {
      throw Error(ErrorCode::kCorrupt, "layer " + experts.path + ": '" + scales.name +
                                           "' expected powers of two, got NaN at element " + std::to_string(i));
    }
    weight.scales.push_back(GetValueTables().f8_e8m0[codes[i]]);
  }
  DequantizeChecked(blocks.name, expert, experts.count, weight, experts.dtype, values, pool);
}

}  // namespace layercast
