#include "engine_side/reload/receive/served_version.h"

#include <exception>

#include "src/base/log.h"

namespace layercast {

namespace {

// A rollback that fails now is no reason to refuse the version that comes, which may heal what is torn.
bool PutsBack(Committer& committer) {
  try {
    return committer.RollBack();
  } catch (const std::exception& error) {
    log::error("putting the old version back: {}", error.what());
    return false;
  }
}

}  // namespace

void ServedVersion::Settle(Committer& committer, NormNoise& noise) {
  if (torn_ && !PutsBack(committer)) return;
  if (torn_ && !lost_) {
    torn_.reset();
    now_ = before_;
    noise.RollBack();
  }
  committer.Forget();
  committed_ = false;
  if (torn_) return;
  before_ = now_;
  noise.Settle();
}

void ServedVersion::Become(const StagedVersion& staged, NormNoise& noise) {
  now_ = {staged.version, staged.digest, staged.origin ? *staged.origin : origin()};
  source_ = staged.source;
  noise.Become();
  torn_.reset();
  committed_ = true;
  lost_ = false;
}

bool ServedVersion::RollBack(Committer& committer, NormNoise& noise, const Version& to) {
  torn_ = Torn{torn_ ? torn_->from : before_.version, to};
  now_ = {.version = {}, .digest = {}, .origin = lost_ ? now_.origin : before_.origin};
  if (!committer.RollBack() || lost_) return false;
  torn_.reset();
  now_ = before_;
  noise.RollBack();
  return true;
}

void ServedVersion::Lose() {
  torn_ = Torn{before_.version, *now_.version};
  now_ = {.version = {}, .digest = {}, .origin = now_.origin};
  lost_ = !committed_;
}

void ServedVersion::Discard(NormNoise& noise) {
  source_.reset();
  committed_ = false;  // and nobody knows what was overwritten by the latest commit
  lost_ = true;
  noise.Lose();
  if (!now_.version) return;
  torn_ = Torn{now_.version, *now_.version};
  now_ = before_ = {.version = {}, .digest = {}, .origin = now_.origin};
}

}  // namespace layercast
