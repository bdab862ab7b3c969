#include "src/transport/shm/memfd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>

#include "layercast/error.h"
#include "src/base/exhausted.h"

namespace layercast::shm_channel {
namespace {

[[noreturn]] void ThrowExhausted(const char* what, std::size_t size) {
  throw SystemError(errno, ErrorCode::kResourceExhausted, std::string("shm: ") + what, size);
}

struct stat Status(const UniqueFd& fd) {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::kCorrupt, "a descriptor that is no memory file");
  }
  return status;
}

}  // namespace

Mapping::~Mapping() {
  if (base_ != nullptr) ::munmap(base_, size_);
}

Memfd MakeMemfd(const char* name, std::size_t size) {
  Memfd made;
  made.fd = UniqueFd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!made.fd) ThrowExhausted("a memory file", size);
  if (::ftruncate(made.fd.get(), static_cast<off_t>(size)) != 0) ThrowExhausted("a memory file", size);
  void* base = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, made.fd.get(), 0);
  if (base == MAP_FAILED) ThrowExhausted("mapping a memory file", size);
  made.memory = Mapping(static_cast<std::byte*>(base), size);
  // From here on nobody, not even this process, can make another writable mapping or change the size.
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  if (::fcntl(made.fd.get(), F_ADD_SEALS, kSeals) != 0) ThrowExhausted("sealing a memory file", size);
  return made;
}

FileIdentity IdentityOf(const UniqueFd& fd) {
  const struct stat status = Status(fd);
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW;
  if (seals < 0 || (seals & kNeeded) != kNeeded) {
    throw Error(ErrorCode::kCorrupt, "a descriptor whose size is not sealed");
  }
  return {status.st_dev, status.st_ino};
}

Mapping MapReadOnly(const UniqueFd& fd) {
  const auto size = static_cast<std::size_t>(Status(fd).st_size);
  if (size == 0) throw Error(ErrorCode::kCorrupt, "an empty memory file");
  void* base = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) ThrowExhausted("mapping the publisher's memory", size);
  return {static_cast<std::byte*>(base), size};
}

}  // namespace layercast::shm_channel
