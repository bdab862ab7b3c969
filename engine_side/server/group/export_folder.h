// Where the ranks of an engine write an export until all of them are done: a folder inside the requested one, so that
// an export that fails leaves nothing behind and replaces nothing. Used by the engine's service.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/error.h"

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
  // Moves these files into the requested folder, in place of files of the same names and of all parts of an earlier
  // export. If that fails, puts back what was there; if even that fails, says in its error where the earlier export is.
  // The earlier files leave before the first new one comes. So at no time, not even if the process dies, does the
  // folder hold parts of two exports: a reader then finds that files are missing.
  void Publish(const std::vector<std::string>& names) const;

 private:
  std::vector<std::string> ReplacedBy(const std::vector<std::string>& names) const;
  void PutBack(const std::vector<std::string>& gone, const std::vector<std::string>& come, const Error& failure) const;

  const std::filesystem::path directory_;
  const std::filesystem::path unfinished_;
  const std::filesystem::path replaced_;  // what was in the folder before, during Publish
};

}  // namespace layercast
