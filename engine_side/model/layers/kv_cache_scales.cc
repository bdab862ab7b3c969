#include "layercast/model/attention.h"

#include <array>
#include <iterator>

#include "engine_side/model/naming/code_names.h"

namespace layercast {
namespace {

constexpr float kUnscaled = 1.0F;
constexpr std::string_view kOfQueries = "scales of queries, which are not quantized here";
constexpr std::string_view kZeroPointsOfQueries = "zero points of queries, which are not quantized here";
constexpr std::string_view kZeroPoints = "zero points of a key/value cache, which has none here";
constexpr std::string_view kNotHeld = "scales of a key/value cache, which this engine does not have";
// The first kAlways rules hold for every engine, the others only for an engine that holds no such scales.
constexpr std::array<SkipRule, 7> kRulesOfScales = {{{"q_scale", kOfQueries},
                                                     {"q_zero_point", kZeroPointsOfQueries},
                                                     {"k_zero_point", kZeroPoints},
                                                     {"v_zero_point", kZeroPoints},
                                                     {kKeyScale, kNotHeld},
                                                     {kValueScale, kNotHeld},
                                                     {kKeyValueScale, kNotHeld}}};
constexpr std::size_t kAlways = 4;

}  // namespace

KvCacheScales::KvCacheScales() : Module("KvCacheScales") {}

void KvCacheScales::Hold(bool hold) {
  if (hold == !parameters().empty()) return;
  if (!hold) {
    for (std::size_t i = parameters().size(); i-- > 0;) RemoveParameter(static_cast<std::uint32_t>(i));
    return;
  }
  for (const std::string_view name : {kKeyScale, kValueScale}) {
    AddParameter(
        {.spec = {std::string(name), DType::kF32, {1}}, .storage = {}, .sign = Sign::kPositive, .fallback = kUnscaled});
  }
  // If a checkpoint has only a scale of keys, it is the values' scale too, as in other engines.
  parameters()[1].stand_in = 0;
}

std::vector<PlacedPiece> KvCacheScales::Place(std::string_view name, std::string_view shard_id,
                                              const TensorSpec& spec) const {
  if (name != kKeyValueScale) return Module::Place(name, shard_id, spec);
  std::vector<PlacedPiece> both = Module::Place(kKeyScale, shard_id, spec);
  const std::vector<PlacedPiece> values = Module::Place(kValueScale, shard_id, spec);
  both.insert(both.end(), values.begin(), values.end());
  return both;
}

std::span<const SkipRule> KvCacheScales::skip_rules() const {
  return std::span(kRulesOfScales).first(parameters().empty() ? kRulesOfScales.size() : kAlways);
}

}  // namespace layercast
