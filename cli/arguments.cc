#include "cli/arguments.h"

#include <charconv>
#include <filesystem>

#include "cli/subcommand.h"

namespace layercast::cli {

void Timeout::Declare(CLI::App& app) {
  app.add_option("--timeout", seconds_, "Seconds that the whole command may take")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
}

std::chrono::milliseconds Timeout::duration() const {
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(seconds_));
}

Version ParseVersion(const std::string& text) {
  const std::size_t at = text.rfind('@');
  Version version;
  if (at != std::string::npos && at > 0) {
    version.lineage = text.substr(0, at);
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + at + 1, end, version.step);
    if (error == std::errc() && stop == end) return version;
  }
  throw UsageError("--version: expected LINEAGE@STEP, got '" + text + "'");
}

std::string VersionText(const Json& version) {
  if (!version.is_object()) return "nothing";
  return VersionFromJson(version).ToString();
}

std::string AbsolutePath(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

}  // namespace layercast::cli
