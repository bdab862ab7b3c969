#include "engine_side/reload/served_version.h"

namespace layercast {

void ServedVersion::Settle(Committer& committer) {
  if (torn_) {
    if (!committer.RollBack()) return;
    torn_.reset();
    now_ = before_;
  }
  committer.Forget();
  before_ = now_;
}

void ServedVersion::Become(const Version& version, const Digest& digest) {
  torn_.reset();
  now_ = {version, digest};
}

bool ServedVersion::RollBack(Committer& committer, const Version& to) {
  torn_ = Torn{torn_ ? torn_->from : before_.version, to};
  now_ = Whole();
  if (!committer.RollBack()) return false;
  torn_.reset();
  now_ = before_;
  return true;
}

}  // namespace layercast
