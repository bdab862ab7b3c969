#include "src/base/paths/allowed_folders.h"

#include <algorithm>
#include <optional>
#include <system_error>

#include "layercast/error.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

namespace fs = std::filesystem;

// Without its last "/", behind which there would be an empty component.
fs::path WithoutSlash(const fs::path& path) {
  return path.has_filename() || !path.has_relative_path() ? path : path.parent_path();
}

bool LiesIn(const fs::path& path, const fs::path& folder) {
  return std::ranges::mismatch(folder, path).in1 == folder.end();
}

// Where an absolute path leads, if there is something.
std::optional<fs::path> Resolved(const fs::path& path) {
  if (!path.is_absolute()) return std::nullopt;
  std::error_code why;
  fs::path resolved = fs::canonical(path, why);
  if (why) return std::nullopt;
  return WithoutSlash(resolved);
}

// Those of its entries that are links, but for links to folders: only a folder's own files are read. A file has none.
std::vector<fs::path> LinksIn(const fs::path& folder) {
  std::vector<fs::path> links;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (at->is_symlink(ignored) && !at->is_directory(ignored)) links.push_back(at->path());
  }
  return links;
}

}  // namespace

AllowedFolders::AllowedFolders(const std::vector<std::string>& folders, std::string_view option) {
  for (const std::string& path : folders) {
    std::error_code why;
    folders_.push_back(WithoutSlash(fs::canonical(path, why)));
    if (why) throw Error(ErrorCode::kInvalidArgument, std::string(option) + ": " + Quote(path) + ": " + why.message());
    all_ += (all_.empty() ? "" : ", ") + Quote(folders_.back().native());
  }
}

std::string AllowedFolders::ToRead(const std::string& path) const {
  std::optional<fs::path> resolved = Resolved(path);  // a NUL ends it, for what opens it too
  if (!resolved) resolved = ToWrite(path);            // whoever reads it says that it is not there
  if (!Hold(*resolved)) Refuse(path);
  for (const fs::path& link : LinksIn(*resolved)) {
    std::error_code dangling;
    const fs::path target = fs::canonical(link, dangling);
    if (!dangling && !Hold(target)) Refuse(link.native());
  }
  return resolved->native();
}

std::string AllowedFolders::ToWrite(const std::string& path) const {
  fs::path there = WithoutSlash(fs::path(path).lexically_normal());
  fs::path missing;
  std::error_code why;
  // A link that leads nowhere is there too: what is made by its name would be made at its target.
  while (there.has_relative_path() && !fs::exists(fs::symlink_status(there, why))) {
    missing = missing.empty() ? there.filename() : there.filename() / missing;
    there = there.parent_path();
  }
  const std::optional<fs::path> resolved = Resolved(there);
  if (!resolved || !Hold(*resolved) || path.find('\0') != std::string::npos) Refuse(path);
  return missing.empty() ? resolved->native() : (*resolved / missing).native();
}

bool AllowedFolders::Hold(const fs::path& resolved) const {
  return std::ranges::any_of(folders_, [&](const fs::path& folder) { return LiesIn(resolved, folder); });
}

// Whoever may not see a folder does not learn whether it is there.
void AllowedFolders::Refuse(const std::string& path) const {
  throw Error(ErrorCode::kPermissionDenied,
              "expected the absolute path of something that is in " + all_ + ", got " + Quote(path));
}

}  // namespace layercast
