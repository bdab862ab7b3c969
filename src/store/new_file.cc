#include "src/store/new_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "layercast/error.h"
#include "src/base/exhausted.h"
#include "src/base/random_id.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

constexpr const char* kStep = "store.step";

ErrorCode CodeOf(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return ErrorCode::kResourceExhausted;
    case ENOENT: return ErrorCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
    case ENOTDIR: return ErrorCode::kInvalidArgument;
    default: return ErrorCode::kUnavailable;
  }
}

}  // namespace

void FailOnFile(const std::filesystem::path& path, const std::string& what, int error) {
  throw SystemError(error, CodeOf(error), Quote(path.native()) + ": " + what);
}

NewFile::NewFile(const std::filesystem::path& tmp, FailPoints& failpoints)
    : path_(tmp / std::to_string(RandomId())), failpoints_(failpoints) {
  failpoints_.Hit(kStep);
  file_ = UniqueFd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file_) FailOnFile(path_, "cannot create", errno);
}

NewFile::~NewFile() {
  if (!placed_) ::unlink(path_.c_str());
}

void NewFile::Write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) FailOnFile(path_, "cannot write", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void NewFile::Write(std::string_view text) { Write(std::as_bytes(std::span(text))); }

void NewFile::Flush() {
  failpoints_.Hit(kStep);
  if (::fsync(file_.get()) != 0) FailOnFile(path_, "cannot flush to disk", errno);
  if (::close(file_.release()) != 0) FailOnFile(path_, "cannot flush to disk", errno);
}

std::int64_t NewFile::WrittenAt() const {
  struct stat status {};
  if (::stat(path_.c_str(), &status) != 0) FailOnFile(path_, "cannot stat", errno);
  return status.st_mtim.tv_sec * std::int64_t{1'000'000'000} + status.st_mtim.tv_nsec;
}

void NewFile::Rename(const std::filesystem::path& to) {
  failpoints_.Hit(kStep);
  if (::rename(path_.c_str(), to.c_str()) != 0) FailOnFile(to, "cannot put a new file there", errno);
  placed_ = true;
}

bool NewFile::Link(const std::filesystem::path& to) {
  failpoints_.Hit(kStep);
  if (::link(path_.c_str(), to.c_str()) == 0) return true;  // its name in tmp goes as if it had not been placed
  if (errno == EEXIST) return IsLinked();
  FailOnFile(to, "cannot put a new file there", errno);
}

// A network's file system may have done it, lost the answer and tried again.
bool NewFile::IsLinked() const {
  struct stat status {};
  return ::stat(path_.c_str(), &status) == 0 && status.st_nlink > 1;
}

void FlushFolder(const std::filesystem::path& folder, FailPoints& failpoints) {
  failpoints.Hit(kStep);
  const UniqueFd opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened && (::fsync(opened.get()) == 0 || errno == EINVAL)) return;  // EINVAL: there it needs none
  FailOnFile(folder, "cannot flush its folder to disk", errno);
}

}  // namespace layercast
