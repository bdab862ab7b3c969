// The folders out of which nothing may lead that somebody at the other end of a connection names. Used by publishers
// and by engines.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace layercast {

// Value; immutable. Links are followed before it is asked where a path lies, and what is then opened is what they led
// to. Whoever may write into an allowed folder can still put a link there after it was looked at (docs/security.md).
class AllowedFolders {
 public:
  // Throws kInvalidArgument, naming the option, on a folder that is not there.
  AllowedFolders(const std::vector<std::string>& folders, std::string_view option);

  bool empty() const { return folders_.empty(); }

  // Where the path leads, or would lead if it were there: a file, or a folder none of whose files is a link that leads
  // out. Throws kPermissionDenied, naming the path, if that is not in an allowed folder, nor one itself.
  std::string ToRead(const std::string& path) const;
  // The same for a folder in which something is to be made. Its links are nobody's way out: files take their places.
  std::string ToWrite(const std::string& path) const;

 private:
  bool Hold(const std::filesystem::path& resolved) const;
  [[noreturn]] void Refuse(const std::string& path) const;

  std::vector<std::filesystem::path> folders_;
  std::string all_;  // for messages
};

}  // namespace layercast
