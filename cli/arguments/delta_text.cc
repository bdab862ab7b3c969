#include "cli/arguments/delta_text.h"

#include <cstdint>
#include <cstdio>

#include "src/base/run_at.h"
#include "src/base/utf8.h"

namespace layercast::cli {
namespace {

std::string Took(double milliseconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f ms", milliseconds);
  return text;
}

std::string Estimates(const Json& delta) {
  if (delta.at("estimated_delta_ms") == 0) return "";
  return "; estimated " + Took(delta["estimated_delta_ms"].get<double>()) + ", dense " +
         Took(delta.at("estimated_dense_ms").get<double>());
}

}  // namespace

std::string DeltaText(const Json& delta) {
  if (!delta.is_object()) return "";
  const std::string took = ", " + Took(delta.at("took_ms").get<double>());
  const auto dense = std::to_string(delta.at("dense_bytes").get<std::uint64_t>());
  if (!delta.at("taken").get<bool>()) {
    return "  dense, " + dense + " bytes" + took + ": " + Escaped(delta.at("why").get<std::string>()) + "\n";
  }
  return "  as a delta of " + Escaped(RunAt(VersionFromJson(delta.at("base")))) + ": " +
         std::to_string(delta.at("encoded_bytes").get<std::uint64_t>()) + " of " + dense + " bytes" + took +
         Estimates(delta) + "\n";
}

}  // namespace layercast::cli
