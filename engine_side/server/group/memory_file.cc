#include "engine_side/server/group/memory_file.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "layercast/error.h"
#include "layercast/memory.h"
#include "src/base/exhausted.h"
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
  const std::size_t begin = used_;
  const std::size_t end = begin + RoundUp(bytes, kMemoryAlignment);
  struct stat status = {};
  if (end > kReserved || ::fstat(fd_.get(), &status) != 0) Fail("a rank's memory");
  if (static_cast<std::size_t>(status.st_size) < end && ::ftruncate(fd_.get(), static_cast<off_t>(end)) != 0) {
    Fail("growing a rank's memory", end);
  }
  used_ = end;
  return base_ + begin;
}

void MemoryFile::Deallocate(std::byte* /*address*/, std::size_t /*bytes*/) noexcept {}

}  // namespace layercast
