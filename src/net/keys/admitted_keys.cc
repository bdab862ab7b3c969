#include "src/net/keys/admitted_keys.h"

#include <sys/stat.h>

#include <utility>

#include "layercast/error.h"
#include "src/base/log.h"
#include "src/net/keys/key_list.h"

namespace layercast {
namespace {

constexpr std::size_t kMostNameBytes = 256;

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

}  // namespace

KeyTable ParseClients(std::string_view text, const std::string& path) {
  KeyTable table;
  for (int number = 1; !text.empty(); ++number) {
    std::string_view line = NextLine(text);
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
  table_ = ParseClients(ReadKeyList(source_), source_);
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
    table_ = ParseClients(ReadKeyList(source_), source_);
    log::info("{} was read again: {} keys are admitted", source_, table_.size());
    return true;
  } catch (const Error& error) {
    log::warn("the list of keys stays what it was: {}", error.what());
    return false;
  }
}

}  // namespace layercast
