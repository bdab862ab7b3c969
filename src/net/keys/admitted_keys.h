// The list of the keys that a server admits, and what each may do. It is a file (`clients` in a key folder) that is
// read again whenever it has changed, so that nobody is started anew to let somebody in or to keep somebody out. Used
// by the check of keys.
#pragma once

#include <sys/types.h>
#include <time.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "src/net/keys/key.h"
#include "src/net/keys/role.h"

namespace layercast {

// Value.
struct AdmittedKey {
  Roles roles;
  std::string name;  // for people; may be empty
};

using KeyTable = std::map<PublicKey, AdmittedKey>;

// Parses a list: a line for each key, "KEY ROLE[,ROLE] [NAME]"; what begins with '#' is a comment. Throws
// kInvalidArgument, naming `path` and the line: a list with one line that cannot be read is refused as a whole.
KeyTable ParseClients(std::string_view text, const std::string& path);
// Such a line.
std::string ClientLine(const PublicKey& key, const Roles& roles, std::string_view name);

// Resource; one thread only.
class AdmittedKeys {
 public:
  // Throws kNotFound and kInvalidArgument.
  explicit AdmittedKeys(std::string path);
  // A list that never changes. `source` is what messages call it.
  AdmittedKeys(KeyTable table, std::string source) : source_(std::move(source)), table_(std::move(table)) {}

  const AdmittedKey* Find(const PublicKey& key) const;  // null: not admitted
  const std::string& source() const { return source_; }

  // Reads the file again if it is another one by now, and returns whether that has changed anything. A list that cannot
  // be read is warned of once, and the old one stays: half a list would lock out whoever is in the other half.
  bool Refresh();

 private:
  struct Stamp {
    ino_t inode = 0;
    off_t bytes = 0;
    timespec changed{};
  };
  std::optional<Stamp> StampNow() const;

  const std::string source_;
  bool is_file_ = false;
  std::optional<Stamp> stamp_;
  KeyTable table_;
};

}  // namespace layercast
