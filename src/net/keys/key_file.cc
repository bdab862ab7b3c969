#include "src/net/keys/key_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "layercast/error.h"
#include "src/base/exhausted.h"
#include "src/base/unique_fd.h"

namespace layercast {
namespace {

constexpr std::size_t kMostBytes = 128;  // of a file: its kind, its key, a line's end
constexpr unsigned kOwnerOnly = 0600;
constexpr unsigned kForAll = 0644;

UniqueFd OpenToRead(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file) {
    throw SystemError(errno, errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kInvalidArgument, "key file " + path);
  }
  return file;
}

void ExpectPrivate(int file, const std::string& path) {
  struct stat found = {};
  if (::fstat(file, &found) != 0 || !S_ISREG(found.st_mode)) {
    throw Error(ErrorCode::kInvalidArgument, "key file " + path + ": expected a file");
  }
  if (found.st_uid != ::geteuid()) {
    throw Error(ErrorCode::kInvalidArgument, "key file " + path + ": it belongs to user " +
                                                 std::to_string(found.st_uid) + ", expected user " +
                                                 std::to_string(::geteuid()) + ", who runs this");
  }
  if ((found.st_mode & 077) == 0) return;
  throw Error(ErrorCode::kInvalidArgument,
              "key file " + path + ": others can read or write it, so it is no secret: expected mode 0600 (chmod 600)");
}

// Whoever reads a secret wipes what they were given.
std::array<std::byte, kKeyBytes> ReadKey(int file, const std::string& path, std::string_view kind) {
  std::array<char, kMostBytes> text{};
  const ssize_t bytes = ::read(file, text.data(), text.size());
  std::string_view line(text.data(), bytes < 0 ? 0 : static_cast<std::size_t>(bytes));
  if (line.ends_with('\n')) line.remove_suffix(1);
  std::optional<std::array<std::byte, kKeyBytes>> key;
  if (line.starts_with(kind) && line.substr(kind.size()).starts_with(' '))
    key = KeyFromText(line.substr(kind.size() + 1));
  ::explicit_bzero(text.data(), text.size());
  if (key) return *key;
  throw Error(ErrorCode::kInvalidArgument, "key file " + path + ": expected one line, '" + std::string(kind) +
                                               "' and 64 hexadecimal digits, got something else");
}

void WriteKey(const std::string& path, std::string_view kind, const std::array<std::byte, kKeyBytes>& key,
              unsigned mode) {
  std::string text = std::string(kind) + " " + ToText(key) + "\n";
  WriteNewFile(path, text, mode);
  ::explicit_bzero(text.data(), text.size());
}

}  // namespace

SecretKey ReadSecretFile(const std::string& path, std::string_view kind) {
  const UniqueFd file = OpenToRead(path);
  ExpectPrivate(file.get(), path);
  return SecretKey(ReadKey(file.get(), path, kind));
}

std::string ReadSecretLine(const std::string& path) {
  constexpr std::size_t kLeast = 16;
  constexpr std::size_t kMost = 512;
  const UniqueFd file = OpenToRead(path);
  ExpectPrivate(file.get(), path);
  std::string line(kMost + 2, '\0');
  const ssize_t bytes = ::read(file.get(), line.data(), line.size());
  line.resize(bytes < 0 ? 0 : static_cast<std::size_t>(bytes));
  if (line.ends_with('\n')) line.pop_back();
  const bool printable = std::ranges::all_of(line, [](char letter) { return letter > ' ' && letter < 127; });
  if (printable && line.size() >= kLeast && line.size() <= kMost) return line;
  ::explicit_bzero(line.data(), line.size());
  throw Error(ErrorCode::kInvalidArgument, "key file " + path + ": expected one line of " + std::to_string(kLeast) +
                                               " to " + std::to_string(kMost) + " printable characters without blanks");
}

PublicKey ReadPublicFile(const std::string& path, std::string_view kind) {
  const UniqueFd file = OpenToRead(path);
  ExpectNobodyElseWrites(file.get(), path);
  return ReadKey(file.get(), path, kind);
}

void ExpectNobodyElseWrites(int file, const std::string& path) {
  struct stat found = {};
  if (::fstat(file, &found) != 0) throw SystemError(errno, ErrorCode::kInvalidArgument, path);
  const bool ours = found.st_uid == ::geteuid() || found.st_uid == 0;
  if (ours && (found.st_mode & 022) == 0) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      path + ": others can write it, so it says nothing of whom to trust: expected mode 0644 or less (chmod 644)");
}

void WriteSecretFile(const std::string& path, std::string_view kind, const SecretKey& key) {
  WriteKey(path, kind, key.bytes(), kOwnerOnly);
}

void WritePublicFile(const std::string& path, std::string_view kind, const PublicKey& key) {
  WriteKey(path, kind, key, kForAll);
}

void WriteNewFile(const std::string& path, std::string_view text, unsigned mode) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!file) {
    if (errno == EEXIST)
      throw Error(ErrorCode::kInvalidArgument, path + " is there already: keys are never overwritten");
    throw SystemError(errno, ErrorCode::kInvalidArgument, "cannot make " + path);
  }
  const ssize_t written = ::write(file.get(), text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size()) || ::fsync(file.get()) != 0) {
    throw SystemError(errno, ErrorCode::kInvalidArgument, "cannot write " + path);
  }
}

}  // namespace layercast
