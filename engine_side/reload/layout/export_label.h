// What `layercast export` says in a file's metadata: which version its kernel tensors belong to, and which rank of what
// engine served them. The rank that exports writes it, and the rank that reads the file compares it with itself.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "layercast/parallel.h"
#include "layercast/version.h"

namespace layercast {

// Value. What a file does not say is not compared: other tools' files say nothing, and older exports say less.
class ExportLabel {
 public:
  using Metadata = std::map<std::string, std::string>;

  // `recipe` is the name that LayerRecipes gives. `served_digest` is that of all of the rank's kernel tensors.
  static Metadata ToWrite(const Version& version, const ParallelConfig& parallel, std::string_view recipe,
                          const Digest& served_digest);
  // Reads only the header. Throws kCorrupt, naming file and field, if a field cannot be right.
  explicit ExportLabel(std::filesystem::path file);

  // The version as the engine that exported it named it.
  const std::optional<Version>& version() const { return version_; }

  // Each of the following checks throws if its condition does not hold, naming the file, what differs, and both values.
  // This one: the rank that `parallel` describes would export the file so.
  void CheckRank(const ParallelConfig& parallel, std::string_view recipe) const;
  // Another file of the same folder is of the same version.
  void CheckVersion(const ExportLabel& other) const;
  // The tensors that were read are those that were served: `got` is their digest.
  void CheckServedDigest(const Digest& got) const;

 private:
  std::filesystem::path file_;
  Metadata said_;
  std::optional<Version> version_;
  std::optional<Digest> served_digest_;
};

}  // namespace layercast
