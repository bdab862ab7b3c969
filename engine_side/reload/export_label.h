// What `layercast export` says in a file's metadata: which version its kernel tensors are of, and which rank's of what
// engine. The rank that exports writes it, and the one that reads holds it against itself.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "layercast/parallel.h"
#include "layercast/version.h"

namespace layercast {

// Value. What a file does not say is not compared: other tools' files say nothing, older exports less.
class ExportLabel {
 public:
  using Metadata = std::map<std::string, std::string>;

  // `recipe`: what LayerRecipes calls it. `served_digest`: of all of the rank's kernel tensors.
  static Metadata ToWrite(const Version& version, const ParallelConfig& parallel, std::string_view recipe,
                          const Digest& served_digest);
  // Reads the header alone. Throws kCorrupt naming file and field where what it says cannot be.
  explicit ExportLabel(std::filesystem::path file);

  // As it was called by the engine that exported it.
  const std::optional<Version>& version() const { return version_; }

  // Each of these throws naming the file, what differs, and both values. That the rank which is `parallel` would export
  // it so:
  void CheckRank(const ParallelConfig& parallel, std::string_view recipe) const;
  // ... that another file of the same folder is of the same version:
  void CheckVersion(const ExportLabel& other) const;
  // ... that these are the bytes which were served.
  void CheckServedDigest(const Digest& got) const;

 private:
  std::filesystem::path file_;
  Metadata said_;
  std::optional<Version> version_;
  std::optional<Digest> served_digest_;
};

}  // namespace layercast
