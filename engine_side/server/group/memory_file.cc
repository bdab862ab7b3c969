#include "engine_side/server/group/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "layercast/error.h"
#include "layercast/memory.h"
#include "src/base/exhausted.h"
#include "src/base/log.h"
#include "src/base/rounding.h"

namespace layercast {
namespace {

constexpr std::size_t kReserved = std::size_t{1} << 40;  // of address space; memory is taken only as it is used

[[noreturn]] void Fail(const std::string& what, std::size_t bytes = 0) {
  throw SystemError(errno, ErrorCode::kResourceExhausted, what, bytes);
}

}  // namespace

UniqueFd MemoryFile::Create(const std::string& name) {
  UniqueFd fd(::memfd_create(name.c_str(), MFD_CLOEXEC));
  if (!fd) Fail("memfd '" + name + "'");
  return fd;
}

MemoryFile::MemoryFile(UniqueFd fd) : fd_(std::move(fd)) {
  void* address = ::mmap(nullptr, kReserved, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_.get(), 0);
  if (address == MAP_FAILED) Fail("mapping a rank's memory", kReserved);
  base_ = static_cast<std::byte*>(address);
}

MemoryFile::~MemoryFile() { ::munmap(base_, kReserved); }

std::byte* MemoryFile::Allocate(std::size_t bytes) {
  if (blocks_ == 0) used_ = 0;
  const std::size_t begin = used_;
  const std::size_t end = begin + RoundUp(bytes, kMemoryAlignment);
  struct stat status = {};
  if (end > kReserved || ::fstat(fd_.get(), &status) != 0) Fail("a rank's memory");
  if (static_cast<std::size_t>(status.st_size) < end && ::ftruncate(fd_.get(), static_cast<off_t>(end)) != 0) {
    Fail("growing a rank's memory", end);
  }
  used_ = end;
  ++blocks_;
  return base_ + begin;
}

void MemoryFile::Deallocate(std::byte* /*address*/, std::size_t /*bytes*/) noexcept { --blocks_; }

// Pages of a file go when it has a hole in their place, and not when they are unmapped.
std::size_t MemoryFile::Sleep(SleepLevel level) {
  if (asleep_ || level == SleepLevel::kKeep) return 0;
  const std::size_t held = Held();
  if (::mprotect(base_, kReserved, PROT_NONE) != 0) Fail("putting a rank's memory to sleep");
  asleep_ = true;
  Punch();
  return held - Held();
}

void MemoryFile::Wake() {
  if (!asleep_) return;
  const std::size_t end = blocks_ == 0 ? 0 : used_;
  if (end > 0 && ::fallocate(fd_.get(), 0, 0, static_cast<off_t>(end)) != 0) {
    const int why = errno;
    Punch();  // what was taken by then
    errno = why;
    Fail("waking a rank's memory up", end);
  }
  if (::mprotect(base_, kReserved, PROT_READ | PROT_WRITE) != 0) Fail("waking a rank's memory up");
  asleep_ = false;
}

// Bytes that the file takes of the system's memory.
std::size_t MemoryFile::Held() const {
  struct stat status = {};
  if (::fstat(fd_.get(), &status) != 0) Fail("a rank's memory");
  return static_cast<std::size_t>(status.st_blocks) * 512;
}

void MemoryFile::Punch() const {
  // Beyond the file's end too, or the page would stay that the end is in.
  if (::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(kReserved)) != 0) {
    log::error("giving a rank's memory back: {}", std::strerror(errno));
  }
}

}  // namespace layercast
