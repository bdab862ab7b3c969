#include "src/checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <system_error>

#include "layercast/error.h"
#include "src/base/exhausted.h"
#include "src/base/unique_fd.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

[[noreturn]] void Fail(const std::filesystem::path& path, const char* what, int error, std::size_t bytes = 0) {
  const ErrorCode code = error == ENOENT || error == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kInvalidArgument;
  throw SystemError(error, code, Quote(path.native()) + ": " + what, bytes);
}

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22  // glibc before 2.35 does not define it
#endif

// Calls madvise on the whole pages that `part` touches. Returns 0 or the error's number.
int AdvisePages(std::span<const std::byte> part, int advice) {
  if (part.empty()) return 0;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(part.data());
  const std::uintptr_t begin = address / page * page;
  return ::madvise(reinterpret_cast<void*>(begin), address + part.size() - begin, advice) == 0 ? 0 : errno;
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  // Non-blocking: opening a named pipe would otherwise wait for a writer.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) Fail(path, "cannot open", errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) Fail(path, "cannot stat", errno);
  if (!S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::kInvalidArgument, Quote(path.native()) + ": expected a regular file");
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return;
  void* const address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) Fail(path, "cannot map", errno, size);
  bytes_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::Populate(std::span<const std::byte> part) const {
  const int error = AdvisePages(part, MADV_POPULATE_READ);
  if (error == 0) return;
  if (error == EFAULT) {
    std::error_code ignored;
    throw Error(ErrorCode::kCorrupt, Quote(path_.native()) + ": became shorter while it was read: expected " +
                                         std::to_string(bytes_.size()) + " bytes, got " +
                                         std::to_string(std::filesystem::file_size(path_, ignored)));
  }
  AdvisePages(part, MADV_WILLNEED);
}

void MappedFile::Release(std::span<const std::byte> part) const { AdvisePages(part, MADV_DONTNEED); }

}  // namespace layercast
