// The versions of a durable store, for whoever looks after it. Publishers write them (PublisherOptions::store), engines
// take them (FromStore, ReloadRequest::store).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "layercast/export.h"
#include "layercast/publisher.h"

namespace layercast {

// What a check of one version has found. Value.
struct CheckedVersion {
  std::string version;             // "run-17@42:0123456789abcdef", or the name of a record that cannot be read
  std::vector<std::string> wrong;  // empty: all its bytes are those that were published
};

// By its path. Value. Calls throw kNotFound if there is no store, and kUnavailable if its file system fails.
class LAYERCAST_PUBLIC Store {
 public:
  explicit Store(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  // Those that are whole. Their bytes are of files; the fields of what a publisher keeps in memory say nothing.
  VersionList Versions() const;
  // As a publisher's. Any number may be pinned. What is evicted takes space for some minutes more.
  VersionList Pin(const Version& version, bool pin = true) const;
  VersionList Evict(const Version& version) const;
  // Reads every byte, by as many threads as the machine has.
  std::vector<CheckedVersion> Check() const;

 private:
  std::string path_;
};

}  // namespace layercast
