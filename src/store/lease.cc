#include "src/store/lease.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/error.h"
#include "src/base/log.h"
#include "src/base/random_id.h"
#include "src/store/new_file.h"

namespace layercast {

Lease::Lease(const StoreFolder& folder, const StoredName& version)
    : path_(folder.leases() / std::to_string(RandomId())), renewed_(std::chrono::steady_clock::now()) {
  FailPoints none;
  try {
    NewFile file(folder.tmp(), none);
    file.Write(version.ToString());
    file.Flush();
    file.Rename(path_);
  } catch (const Error& error) {
    path_.clear();
    log::warn("{} is read without a lease: {}", folder.ToString(), error.what());
  }
}

Lease::~Lease() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

void Lease::Renew() {
  const auto now = std::chrono::steady_clock::now();
  if (path_.empty() || now - renewed_ < kTime / 10) return;
  renewed_ = now;
  ::utimensat(AT_FDCWD, path_.c_str(), nullptr, 0);  // to the store's own time; bytes are checked in any case
}

std::set<StoredName> Leased(const StoreFolder& folder, std::int64_t now) {
  std::set<StoredName> leased;
  for (const std::string& id : StoreFolder::NamesIn(folder.leases())) {
    const std::filesystem::path path = folder.leases() / id;
    const std::optional<std::vector<std::byte>> text = StoreFolder::Read(path);
    if (!text) continue;  // it has just ended
    const std::string_view name(reinterpret_cast<const char*>(text->data()), text->size());
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) continue;
    const std::int64_t renewed = status.st_mtim.tv_sec * std::int64_t{1'000'000'000} + status.st_mtim.tv_nsec;
    if (std::chrono::nanoseconds(now - renewed) > Lease::kTime) {
      ::unlink(path.c_str());
    } else if (const std::optional<StoredName> version = StoredName::FromString(name)) {
      leased.insert(*version);
    }
  }
  return leased;
}

}  // namespace layercast
