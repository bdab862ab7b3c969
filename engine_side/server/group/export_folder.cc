#include "engine_side/server/group/export_folder.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <system_error>
#include <utility>

#include "src/base/exhausted.h"
#include "src/base/log.h"
#include "src/checkpoint/rank_files.h"

namespace layercast {
namespace {

[[noreturn]] void Fail(const std::filesystem::path& path, const char* what, const std::error_code& error) {
  throw SystemError(error.value(), ErrorCode::kInvalidArgument, "'" + path.string() + "': " + what);
}

// The names in a folder.
std::vector<std::string> NamesIn(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  try {
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      names.push_back(entry.path().filename().string());
    }
  } catch (const std::filesystem::filesystem_error& error) {
    Fail(directory, "cannot list this folder", error.code());
  }
  return names;
}

// Moves the file `name` from one folder into another.
void Move(const std::string& name, const std::filesystem::path& from, const std::filesystem::path& to) {
  std::error_code error;
  std::filesystem::rename(from / name, to / name, error);
  if (error) Fail(from / name, ("cannot move into '" + to.string() + "'").c_str(), error);
}

bool IsOfWeights(const std::string& name) {
  constexpr std::array kEndings = {".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt",
                                   ".gguf"};
  return std::ranges::any_of(kEndings, [&](const char* ending) { return name.ends_with(ending); });
}

void ExpectNoOtherWeights(const std::filesystem::path& directory) {
  for (const std::string& name : NamesIn(directory)) {
    if (IsRankFile(name) || !IsOfWeights(name)) continue;
    throw Error(ErrorCode::kInvalidArgument, "'" + directory.string() +
                                                 "': expected a folder without weights, or with an "
                                                 "earlier export, got one with '" +
                                                 name + "'");
  }
}

}  // namespace

ExportFolder::ExportFolder(std::filesystem::path directory)
    : directory_(std::move(directory)),
      unfinished_(directory_ / (".export." + std::to_string(::getpid()) + ".tmp")),
      replaced_(directory_ / (".export." + std::to_string(::getpid()) + ".replaced")) {
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
  const std::vector<std::string> old = ReplacedBy(names);
  std::vector<std::string> gone, come;
  std::error_code error;
  std::filesystem::create_directory(replaced_, error);
  if (error) Fail(replaced_, "cannot make this folder", error);
  try {
    for (const std::string& name : old) {
      Move(name, directory_, replaced_);
      gone.push_back(name);
    }
    for (const std::string& name : names) {
      Move(name, unfinished_, directory_);
      come.push_back(name);
    }
  } catch (const Error& failure) {
    PutBack(gone, come, failure);
    throw;
  }
  std::filesystem::remove_all(replaced_, error);
  if (error) log::warn("'{}': cannot remove this earlier export: {}", replaced_.string(), error.message());
}

// The names in the folder that an export of `names` takes the place of. Refuses folders of these names.
std::vector<std::string> ExportFolder::ReplacedBy(const std::vector<std::string>& names) const {
  std::vector<std::string> old;
  for (const std::string& name : NamesIn(directory_)) {
    if (!IsRankFile(name) && std::ranges::find(names, name) == names.end()) continue;
    std::error_code ignored;
    if (std::filesystem::is_directory(directory_ / name, ignored)) {
      Fail(directory_ / name, "in the way", std::make_error_code(std::errc::is_a_directory));
    }
    old.push_back(name);
  }
  return old;
}

// Undoes a Publish that failed, in the opposite order: first those files leave that have come.
void ExportFolder::PutBack(const std::vector<std::string>& gone, const std::vector<std::string>& come,
                           const Error& failure) const {
  try {
    for (const std::string& name : come) Move(name, directory_, unfinished_);
    for (const std::string& name : gone) Move(name, replaced_, directory_);
    std::filesystem::remove(replaced_);
  } catch (const std::exception& error) {
    throw Error(failure.code(), std::string(failure.what()) + "; the earlier export is in '" + replaced_.string() +
                                    "', because it could not be put back: " + error.what());
  }
}

}  // namespace layercast
