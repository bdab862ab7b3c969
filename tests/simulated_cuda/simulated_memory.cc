#include "tests/simulated_cuda/simulated_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace simulated_cuda {
namespace {

constexpr const char* kName = "simulated-cuda";

struct KnownRanges {
  std::mutex mutex;
  std::map<const std::byte*, KnownRange> by_base;  // guarded by mutex
};

KnownRanges& Known() {
  static auto& known = *new KnownRanges;
  return known;
}

}  // namespace

void Know(const KnownRange& range) {
  const std::lock_guard lock(Known().mutex);
  Known().by_base[range.base] = range;
}

void Forget(const void* base) {
  const std::lock_guard lock(Known().mutex);
  Known().by_base.erase(static_cast<const std::byte*>(base));
}

std::optional<KnownRange> Find(const void* address) {
  const auto* const byte = static_cast<const std::byte*>(address);
  const std::lock_guard lock(Known().mutex);
  auto after = Known().by_base.upper_bound(byte);
  if (after == Known().by_base.begin()) return std::nullopt;
  const KnownRange& range = (--after)->second;
  return byte < range.base + range.size ? std::optional(range) : std::nullopt;
}

bool IsInOneRange(const void* address, std::size_t bytes) {
  if (bytes == 0) return true;
  const auto* const last = static_cast<const std::byte*>(address) + bytes - 1;
  const std::optional<KnownRange> first_in = Find(address);
  const std::optional<KnownRange> last_in = Find(last);
  return (first_in ? first_in->base : nullptr) == (last_in ? last_in->base : nullptr);
}

SharedMemory MakeShared(std::size_t bytes) {
  if (bytes > kDeviceBytes) return {};
  const int file = ::memfd_create(kName, MFD_CLOEXEC);
  if (file < 0) return {};
  if (::ftruncate(file, static_cast<off_t>(bytes)) == 0) {
    const SharedMemory memory = MapShared(file, bytes);
    if (memory.base != nullptr) {
      std::memset(memory.base, kJunk, bytes);
      return memory;
    }
  }
  ::close(file);
  return {};
}

SharedMemory MapShared(int file, std::size_t bytes) {
  void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (base == MAP_FAILED) return {};
  return {file, static_cast<std::byte*>(base), bytes};
}

void UnmapShared(const SharedMemory& memory) {
  ::munmap(memory.base, memory.size);
  ::close(memory.file);
}

std::size_t SizeOfShared(int file) {
  std::string name(64, '\0');
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  const ssize_t length = ::readlink(link.c_str(), name.data(), name.size());
  struct stat status {};
  if (length < 0 || !name.starts_with(std::string("/memfd:") + kName) || ::fstat(file, &status) != 0) return 0;
  return static_cast<std::size_t>(status.st_size);
}

FileOfProcess NameFile(int file) {
  struct stat status {};
  ::fstat(file, &status);
  return {::getpid(), file, status.st_ino};
}

int OpenFile(const FileOfProcess& named) {
  const std::string path = "/proc/" + std::to_string(named.process) + "/fd/" + std::to_string(named.fd);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return -1;
  if (SizeOfShared(file) != 0 && NameFile(file).inode == named.inode) return file;
  ::close(file);
  return -1;
}

}  // namespace simulated_cuda
