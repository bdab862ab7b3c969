#include "trainer_side/watch/folder_watch.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>

#include "layercast/error.h"
#include "src/base/log.h"
#include "src/base/utf8.h"
#include "src/checkpoint/formats/checkpoint.h"

namespace layercast {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStable = "STABLE";

// Calls `visit` with the path of each entry. What vanishes meanwhile is left out.
void EachEntry(const fs::path& folder, std::error_code& why, const auto& visit) {
  for (fs::directory_iterator entry(folder, why); !why && entry != fs::directory_iterator(); entry.increment(why)) {
    visit(entry->path());
  }
}

}  // namespace

std::optional<std::uint64_t> StepOfFolder(std::string_view name) {
  for (const std::string_view prefix : {"checkpoint", "global_step", "step", "ckpt", "iter"}) {
    if (!name.starts_with(prefix)) continue;
    name.remove_prefix(prefix.size());
    if (name.starts_with('-') || name.starts_with('_')) name.remove_prefix(1);
    break;
  }
  std::uint64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return step;
}

std::string FingerprintOf(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code why;
  EachEntry(folder, why, [&](const fs::path& path) {
    struct stat file {};
    if (::stat(path.c_str(), &file) != 0) return;
    files.push_back(path.filename().string() + '\0' + std::to_string(file.st_ino) + ' ' + std::to_string(file.st_size) +
                    ' ' + std::to_string(file.st_mtim.tv_sec) + '.' + std::to_string(file.st_mtim.tv_nsec) + '\0');
  });
  std::ranges::sort(files);
  std::string all;
  for (const std::string& file : files) all += file;
  return all;
}

FolderWatch::FolderWatch(std::string parent, Clock::duration quiet, std::function<Clock::time_point()> now)
    : parent_(std::move(parent)), quiet_(quiet), now_(std::move(now)) {}

std::vector<FoundCheckpoint> FolderWatch::Look() {
  std::vector<FoundCheckpoint> found;
  std::error_code why;
  EachEntry(parent_, why, [&](const fs::path& path) {
    const std::optional<std::uint64_t> step = StepOfFolder(path.filename().string());
    std::error_code unseen;
    if (!step || !fs::is_directory(path, unseen)) return;
    Seen& seen = seen_[path.string()];
    const std::string fingerprint = FingerprintOf(path.string());
    if (fingerprint != seen.fingerprint) {
      seen = {.fingerprint = fingerprint, .since = now_(), .judged = false, .found = seen.found};
    }
    if (!IsWhole(path.string(), seen)) return;
    found.push_back({path.string(), *step, fingerprint, seen.found});
    seen.found = true;
  });
  if (why) throw Error(ErrorCode::kNotFound, "watching " + Quote(parent_) + ": " + why.message());
  std::ranges::sort(found, {}, &FoundCheckpoint::step);
  return found;
}

bool FolderWatch::IsWhole(const std::string& path, Seen& seen) const {
  if (seen.judged || seen.fingerprint.empty()) return false;
  std::error_code why;
  const bool quiet = now_() - seen.since >= quiet_;
  if (!quiet && !fs::exists(fs::path(path) / kStable, why)) return false;
  try {
    (void)Checkpoint::Open(fs::path(path));
    seen.judged = true;
    return true;
  } catch (const Error& error) {
    if (!quiet) return false;
    seen.judged = true;  // and looked at anew when it changes
    log::warn("{} is no whole checkpoint yet: {}", Quote(path), error.what());
    return false;
  }
}

}  // namespace layercast
