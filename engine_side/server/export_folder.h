// Where the ranks of an engine write an export until all of them are done: a folder inside the requested one, so that
// an export that fails leaves nothing behind and replaces nothing. Used by the engine's service.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace layercast {

// Resource; one thread only. Every call throws kInvalidArgument, or kResourceExhausted if the disk is full, naming path
// and reason.
class ExportFolder {
 public:
  // Makes `directory`, if need be, and the folder inside it. Refuses a directory that holds weights other than an
  // export: `serve` would then load the export in their place, and their config.json would be overwritten.
  explicit ExportFolder(std::filesystem::path directory);
  ~ExportFolder();  // deletes what was not published
  ExportFolder(const ExportFolder&) = delete;
  ExportFolder& operator=(const ExportFolder&) = delete;

  // The folder in which the ranks write.
  const std::filesystem::path& unfinished() const { return unfinished_; }
  void Write(const std::string& name, std::string_view text) const;
  // Renames these files into the requested folder, replacing files of the same names. Deletes what an earlier export of
  // more ranks or parts has left there.
  void Publish(const std::vector<std::string>& names) const;

 private:
  const std::filesystem::path directory_;
  const std::filesystem::path unfinished_;
};

}  // namespace layercast
