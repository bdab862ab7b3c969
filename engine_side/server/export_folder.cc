#include "engine_side/server/export_folder.h"

#include <unistd.h>

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

}  // namespace

ExportFolder::ExportFolder(std::filesystem::path directory)
    : directory_(std::move(directory)), unfinished_(directory_ / (".export." + std::to_string(::getpid()) + ".tmp")) {
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  if (error) Fail(directory_, "cannot make this folder", error);
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
  // What is certain to stop one of them stops all, before the first.
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
}

}  // namespace layercast
