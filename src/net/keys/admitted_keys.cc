#include "src/net/keys/admitted_keys.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "layercast/error.h"
#include "src/base/exhausted.h"
#include "src/base/log.h"
#include "src/base/unique_fd.h"
#include "src/net/keys/key_file.h"

namespace layercast {
namespace {

constexpr std::size_t kMostClientBytes = std::size_t{4} << 20;  // of a list
constexpr std::size_t kMostNameBytes = 256;

// The next word of a line, which is cut off from it.
std::string_view NextWord(std::string_view& line) {
  constexpr std::string_view kSpace = " \t\r";
  line.remove_prefix(std::min(line.size(), line.find_first_not_of(kSpace)));
  const std::string_view word = line.substr(0, line.find_first_of(kSpace));
  line.remove_prefix(word.size());
  return word;
}

Roles RolesFrom(std::string_view words, const std::string& where) {
  Roles roles;
  for (bool more = true; more;) {
    const std::size_t comma = words.find(',');
    const std::string_view word = words.substr(0, comma);
    const std::optional<Role> role = RoleNamed(word);
    if (!role) {
      throw Error(ErrorCode::kInvalidArgument, where + ": expected roles, some of " + Roles::All().Text() + ", got '" +
                                                   std::string(word.substr(0, 64)) + "'");
    }
    roles.Add(*role);
    more = comma != std::string_view::npos;
    if (more) words.remove_prefix(comma + 1);
  }
  return roles;
}

std::string ReadList(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file) throw SystemError(errno, errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kInvalidArgument, path);
  ExpectNobodyElseWrites(file.get(), path);
  std::string text(kMostClientBytes + 1, '\0');
  std::size_t bytes = 0;
  for (ssize_t more = 1; more > 0 && bytes < text.size(); bytes += static_cast<std::size_t>(more)) {
    more = ::read(file.get(), text.data() + bytes, text.size() - bytes);
    if (more < 0) throw SystemError(errno, ErrorCode::kInvalidArgument, path);
  }
  text.resize(bytes);
  if (text.size() <= kMostClientBytes) return text;
  throw Error(ErrorCode::kInvalidArgument,
              path + ": expected a list of at most " + std::to_string(kMostClientBytes) + " bytes");
}

}  // namespace

KeyTable ParseClients(std::string_view text, const std::string& path) {
  KeyTable table;
  for (int number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::string where = path + ", line " + std::to_string(number);
    const std::string_view word = NextWord(line);
    if (word.empty() || word.starts_with('#')) continue;
    const std::optional<PublicKey> key = KeyFromText(word);
    if (!key) {  // what stands there may be a secret one that somebody has put there by mistake
      throw Error(ErrorCode::kInvalidArgument, where + ": expected a key of 64 hexadecimal digits, got " +
                                                   std::to_string(word.size()) + " characters that are none");
    }
    const Roles roles = RolesFrom(NextWord(line), where);
    const std::string_view name = NextWord(line);
    if (!NextWord(line).empty() || name.size() > kMostNameBytes) {
      throw Error(ErrorCode::kInvalidArgument, where + ": expected KEY ROLES NAME, got more");
    }
    if (!table.emplace(*key, AdmittedKey{roles, std::string(name)}).second) {
      throw Error(ErrorCode::kInvalidArgument, where + ": the key " + ShortText(*key) + " is there twice");
    }
  }
  return table;
}

std::string ClientLine(const PublicKey& key, const Roles& roles, std::string_view name) {
  return ToText(key) + " " + roles.Text() + (name.empty() ? "" : " ") + std::string(name);
}

AdmittedKeys::AdmittedKeys(std::string path) : source_(std::move(path)), is_file_(true), stamp_(StampNow()) {
  table_ = ParseClients(ReadList(source_), source_);
}

const AdmittedKey* AdmittedKeys::Find(const PublicKey& key) const {
  const auto found = table_.find(key);
  return found == table_.end() ? nullptr : &found->second;
}

std::optional<AdmittedKeys::Stamp> AdmittedKeys::StampNow() const {
  struct stat found = {};
  if (::stat(source_.c_str(), &found) != 0) return std::nullopt;
  return Stamp{found.st_ino, found.st_size, found.st_mtim};
}

bool AdmittedKeys::Refresh() {
  if (!is_file_) return false;
  const std::optional<Stamp> now = StampNow();
  const auto same = [](const Stamp& a, const Stamp& b) {
    return a.inode == b.inode && a.bytes == b.bytes && a.changed.tv_sec == b.changed.tv_sec &&
           a.changed.tv_nsec == b.changed.tv_nsec;
  };
  if (now.has_value() == stamp_.has_value() && (!now || same(*now, *stamp_))) return false;
  stamp_ = now;  // taken before the file is read: if it changes meanwhile, it is read once more
  try {
    table_ = ParseClients(ReadList(source_), source_);
    log::info("{} was read again: {} keys are admitted", source_, table_.size());
    return true;
  } catch (const Error& error) {
    log::warn("the list of keys stays what it was: {}", error.what());
    return false;
  }
}

}  // namespace layercast
