#include "src/checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "layercast/error.h"
#include "src/base/unique_fd.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

[[noreturn]] void Fail(const std::filesystem::path& path, const char* what, int error) {
  const ErrorCode code = error == ENOENT || error == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kInvalidArgument;
  throw Error(code, Quote(path.native()) + ": " + what + ": " + std::generic_category().message(error));
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
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
  if (address == MAP_FAILED) Fail(path, "cannot map", errno);
  bytes_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace layercast
