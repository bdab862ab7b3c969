// A version that publishers keep for a canary until the others have taken it. Used by CanaryReload.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "layercast/version.h"
#include "src/base/deadline.h"
#include "src/net/keys/keys.h"
#include "src/wire/frames.h"

namespace layercast {

// Resource; one thread only.
class HeldVersion {
 public:
  // Finds the version at each of the publishers (empty: their newest) and has them keep it for so long. Throws
  // kNotFound naming what a publisher keeps, and what publishers refuse with.
  HeldVersion(const std::vector<std::string>& publishers, const Keys& keys, const std::optional<Version>& wanted,
              std::chrono::milliseconds lease, const Deadline& deadline);
  ~HeldVersion();  // lets go; a publisher that does not answer does so when the lease ends
  HeldVersion(const HeldVersion&) = delete;
  HeldVersion& operator=(const HeldVersion&) = delete;

  // By its digest, if there is one publisher; what several have is a part of it each, and the digest is empty.
  const Version& version() const { return version_; }
  // Has this one kept likewise, and returns true, if there is one publisher and it still has it.
  bool AlsoHold(const Version& version, std::chrono::milliseconds lease, const Deadline& deadline);
  // Has it kept for so long from now on.
  void Renew(std::chrono::milliseconds lease, const Deadline& deadline);

 private:
  struct Held {
    std::string publisher;
    wire::HoldVersion order;
  };
  void HoldAll(std::chrono::milliseconds lease, const Deadline& deadline);

  const Keys keys_;
  const std::size_t publishers_;
  std::vector<Held> held_;               // of each of them, and then more versions of the one
  std::vector<wire::KeptVersion> kept_;  // by the first publisher, when it was asked last
  Version version_;
};

}  // namespace layercast
