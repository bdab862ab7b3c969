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

void ServedVersion::Become(const StagedVersion& staged) {
  now_ = {staged.version, staged.digest, staged.origin ? *staged.origin : origin()};
  torn_.reset();
}

bool ServedVersion::RollBack(Committer& committer, const Version& to) {
  torn_ = Torn{torn_ ? torn_->from : before_.version, to};
  now_ = Whole();
  if (!committer.RollBack()) return false;
  torn_.reset();
  now_ = before_;
  return true;
}

void ServedVersion::Lose() {
  torn_ = Torn{before_.version, *now_.version};
  now_ = Whole();
}

}  // namespace layercast
