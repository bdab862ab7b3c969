#include "src/net/host_identity.h"

#include <unistd.h>

#include <array>
#include <fstream>
#include <string>

namespace layercast {
namespace {

// The name of a namespace ("net:[4026531840]"); empty where /proc is not mounted, and then no peer counts as near.
std::string Namespace(const char* path) {
  std::array<char, 64> name{};
  const ssize_t length = ::readlink(path, name.data(), name.size());
  return length > 0 ? std::string(name.data(), static_cast<std::size_t>(length)) : std::string();
}

}  // namespace

HostIdentity HostIdentity::Mine() {
  HostIdentity mine;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> mine.boot_id;
  mine.network = Namespace("/proc/self/ns/net");
  mine.user = std::to_string(::geteuid());
  mine.process = std::to_string(::getpid()) + "@" + Namespace("/proc/self/ns/pid");
  return mine;
}

}  // namespace layercast
