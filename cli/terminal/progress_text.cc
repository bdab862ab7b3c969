#include "cli/terminal/progress_text.h"

#include <cstdint>
#include <cstdio>

#include "src/base/run_at.h"
#include "src/base/utf8.h"

namespace layercast::cli {
namespace {

std::string OfTotal(const Json& progress, const std::string& what) {
  const std::string total = progress.at(what + "_total") == 0 ? "?" : progress[what + "_total"].dump();
  return progress.at(what).dump() + " of " + total + " " + what;
}

// "receive, 1234 of 5678 bytes, 12 of 30 layers"
std::string HowFar(const Json& progress) {
  const auto stage = progress.at("stage").get<std::string>();
  return Escaped(stage.empty() ? "not begun" : stage) + ", " + OfTotal(progress, "bytes") + ", " +
         OfTotal(progress, "layers");
}

std::string Seconds(double milliseconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", milliseconds * 1e-3);
  return text;
}

}  // namespace

std::string ProgressText(const Json& progress) {
  if (!progress.is_object()) return "";
  const Json& version = progress.at("version");
  std::string text = "  loads " + (version.is_object() ? Escaped(RunAt(VersionFromJson(version))) : "a version") +
                     " since " + Seconds(progress.at("elapsed_ms").get<double>()) + ": " + HowFar(progress) + "\n";
  for (const Json& rank : progress.at("ranks"))
    text += "    rank " + rank.at("rank").dump() + ": " + HowFar(rank) + "\n";
  return text;
}

}  // namespace layercast::cli
