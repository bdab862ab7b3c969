#include "src/session/deltas/delta_terms.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <string>

#include "layercast/error.h"

namespace layercast {
namespace {

// What one core makes of a base in a second: its copy, with the steps of a delta added, digested (bench/delta).
constexpr double kAppliedBytesPerSecond = 4e9;

constexpr std::array<std::string_view, 3> kUseNames = {"auto", "always", "never"};

}  // namespace

std::string_view DeltaUseName(DeltaUse use) { return kUseNames.at(static_cast<std::size_t>(use)); }

DeltaUse DeltaUseNamed(std::string_view name) {
  const auto* const found = std::ranges::find(kUseNames, name);
  if (found != kUseNames.end()) return static_cast<DeltaUse>(std::distance(kUseNames.begin(), found));
  throw Error(ErrorCode::kInvalidArgument, "delta: expected auto, always or never, got '" + std::string(name) + "'");
}

std::vector<std::string> KnownDeltaUses() { return {kUseNames.begin(), kUseNames.end()}; }

std::uint64_t DeltaTerms::most_bytes() const {
  if (use == DeltaUse::kNever) return 0;
  if (use == DeltaUse::kAlways) return std::numeric_limits<std::uint64_t>::max();
  if (attaches) return 0;  // nothing is sent that could be spared
  if (gb_per_s == 0) return dense_bytes;
  const double share = 1 - gb_per_s * 1e9 / kAppliedBytesPerSecond;
  return static_cast<std::uint64_t>(std::max(0.0, share) * static_cast<double>(dense_bytes));
}

double DeltaTerms::dense_ms() const { return gb_per_s == 0 ? 0 : static_cast<double>(dense_bytes) / gb_per_s * 1e-6; }

double DeltaTerms::delta_ms(std::uint64_t bytes) const {
  if (gb_per_s == 0) return 0;
  return static_cast<double>(bytes) / gb_per_s * 1e-6 + static_cast<double>(dense_bytes) / kAppliedBytesPerSecond * 1e3;
}

}  // namespace layercast
