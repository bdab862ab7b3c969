// Where the ranks of an engine write an export until all of them are done: a folder inside the one that was asked for,
// so that what fails leaves nothing behind and replaces nothing. Used by the engine's service.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace layercast {

// Resource; one thread only. All of it throws kInvalidArgument, or kResourceExhausted where the disk is full, naming
// path and reason.
class ExportFolder {
 public:
  // Makes `directory`, if need be, and the folder inside it. One that holds weights which are no export is refused:
  // `serve` would load the export in their place, and their config.json be gone.
  explicit ExportFolder(std::filesystem::path directory);
  ~ExportFolder();  // what was not published is gone
  ExportFolder(const ExportFolder&) = delete;
  ExportFolder& operator=(const ExportFolder&) = delete;

  // Where they are written.
  const std::filesystem::path& unfinished() const { return unfinished_; }
  void Write(const std::string& name, std::string_view text) const;
  // Renames these into the folder that was asked for, over what has their names there. What an earlier export of more
  // ranks or parts has left goes.
  void Publish(const std::vector<std::string>& names) const;

 private:
  const std::filesystem::path directory_;
  const std::filesystem::path unfinished_;
};

}  // namespace layercast
