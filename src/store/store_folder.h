// The folder of a store (FORMAT.md): where things lie in it, and what there is of its small files. Used by all of the
// room.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "layercast/version.h"
#include "src/base/failpoint.h"

namespace layercast {

// How long ago a file was written, by the clock of the host that has the store. `now` is NewFile::WrittenAt's.
std::chrono::nanoseconds AgeOf(const std::filesystem::path& path, std::int64_t now);

// What a version is called in the store: its lineage, of which there is a digest here; the number of the run, from 1
// on; the step. Value.
struct StoredName {
  Digest lineage;
  std::uint32_t run = 1;
  std::uint64_t step = 0;

  static StoredName Of(const std::string& lineage, std::uint32_t run, std::uint64_t step);
  // As ToString writes it; nullopt: that is none.
  static std::optional<StoredName> FromString(std::string_view text);
  std::string ToString() const;
  auto operator<=>(const StoredName&) const = default;
};

Digest DigestOfLineage(const std::string& lineage);

// Value.
class StoreFolder {
 public:
  // Makes what is missing of it. Throws kInvalidArgument if something else is there.
  static StoreFolder Make(const std::filesystem::path& root, FailPoints& failpoints);
  // Throws kNotFound if there is none, and kUnsupported if it is of another format.
  static StoreFolder Open(const std::filesystem::path& root);

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path Object(const Digest& digest) const { return ObjectsFolder(digest) / digest.ToHex(); }
  std::filesystem::path ObjectsFolder(const Digest& digest) const {
    return root_ / "objects" / digest.ToHex().substr(0, 2);
  }
  std::filesystem::path objects() const { return root_ / "objects"; }
  std::filesystem::path versions() const { return root_ / "versions"; }
  std::filesystem::path evicted() const { return root_ / "evicted"; }
  std::filesystem::path RunFile(const Digest& lineage, std::size_t number) const {
    return runs() / (lineage.ToHex() + "." + std::to_string(number));
  }
  std::filesystem::path runs() const { return root_ / "runs"; }
  std::filesystem::path parts() const { return root_ / "parts"; }
  std::filesystem::path pins() const { return root_ / "pins"; }
  std::filesystem::path leases() const { return root_ / "leases"; }
  std::filesystem::path tmp() const { return root_ / "tmp"; }
  std::filesystem::path latest() const { return root_ / "latest"; }
  std::string ToString() const;  // "store '/shared/run-17'"

  // The names in one of its folders, sorted.
  static std::vector<std::string> NamesIn(const std::filesystem::path& folder);
  // A small file's bytes; nullopt: there is no such file.
  static std::optional<std::vector<std::byte>> Read(const std::filesystem::path& path);

 private:
  explicit StoreFolder(std::filesystem::path root) : root_(std::move(root)) {}
  void MakeFormatFile(FailPoints& failpoints) const;

  std::filesystem::path root_;
};

}  // namespace layercast
