#include "engine_side/server/export_folder.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <system_error>
#include <utility>

#include "layercast/error.h"

namespace layercast {
namespace {

[[noreturn]] void Fail(const std::filesystem::path& path, const char* what, const std::error_code& error) {
  const bool full = error == std::errc::no_space_on_device;
  throw Error(full ? ErrorCode::kResourceExhausted : ErrorCode::kInvalidArgument,
              "'" + path.string() + "': " + what + ": " + error.message());
}

// Whether a file has a name that ExportRank gives.
bool IsOfAnExport(const std::string& name) { return name.starts_with("model-rank-") && name.ends_with(".safetensors"); }

bool IsOfWeights(const std::string& name) {
  constexpr std::array kEndings = {".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt",
                                   ".gguf"};
  return std::ranges::any_of(kEndings, [&](const char* ending) { return name.ends_with(ending); });
}

void ExpectNoOtherWeights(const std::filesystem::path& directory) {
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (IsOfAnExport(name) || !IsOfWeights(name)) continue;
    throw Error(ErrorCode::kInvalidArgument, "'" + directory.string() +
                                                 "': expected a folder without weights, or with an "
                                                 "earlier export, got one with '" +
                                                 name + "'");
  }
}

}  // namespace

ExportFolder::ExportFolder(std::filesystem::path directory)
    : directory_(std::move(directory)), unfinished_(directory_ / (".export." + std::to_string(::getpid()) + ".tmp")) {
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  if (error) Fail(directory_, "cannot make this folder", error);
  ExpectNoOtherWeights(directory_);
  std::filesystem::create_directory(unfinished_, error);
  if (error) Fail(directory_, "cannot write into this folder", error);
}

ExportFolder::~ExportFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(unfinished_, ignored);
}

void ExportFolder::Write(const std::string& name, std::string_view text) const {
  const std::filesystem::path path = unfinished_ / name;
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file << text << std::flush;
  if (!file) Fail(path, "cannot write", {errno, std::generic_category()});
}

void ExportFolder::Publish(const std::vector<std::string>& names) const {
  // Checks first for what would surely stop one of the renames, so that then none is done.
  for (const std::string& name : names) {
    const std::error_code in_the_way = std::make_error_code(std::errc::is_a_directory);
    std::error_code ignored;
    if (std::filesystem::is_directory(directory_ / name, ignored)) Fail(directory_ / name, "in the way", in_the_way);
  }
  for (const std::string& name : names) {
    std::error_code error;
    std::filesystem::rename(unfinished_ / name, directory_ / name, error);
    if (error) Fail(directory_ / name, "cannot rename the finished file", error);
  }
  for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
    const std::string name = entry.path().filename().string();
    if (!IsOfAnExport(name) || std::ranges::find(names, name) != names.end()) continue;
    std::error_code error;
    if (!std::filesystem::remove(entry.path(), error)) Fail(entry.path(), "cannot remove this earlier export", error);
  }
}

}  // namespace layercast
