#include "engine_side/reload/sources/progress_teller.h"

#include <exception>

#include "src/base/log.h"

namespace layercast {
namespace {

// How many hundredths of the total that is. Totals are sizes of memory, so there is no overflow below 2^57.
std::uint64_t Hundredths(const ReloadProgress& progress) {
  return progress.bytes_total == 0 ? 0 : progress.bytes * 100 / progress.bytes_total;
}

}  // namespace

void ProgressTeller::Begin() {
  now_ = told_ = {};
  threw_ = false;
}

void ProgressTeller::Enter(const char* stage, const Version& version) {
  now_.stage = stage;
  now_.version = version;
  Tell();
}

void ProgressTeller::Expect(std::uint64_t bytes_total, std::uint64_t layers_total) {
  now_.bytes_total = bytes_total;
  now_.layers_total = layers_total;
}

void ProgressTeller::Came(std::uint64_t bytes, std::uint64_t layers) {
  now_.bytes = bytes;
  now_.layers = layers;
  if (tell_ && MayTell()) Tell();
}

bool ProgressTeller::MayTell() const {
  if (Hundredths(now_) != Hundredths(told_)) return true;
  const bool whole = now_.layers_total != 0 && now_.layers == now_.layers_total;
  return whole || Clock::now() - told_at_ >= kPeriod;
}

// The callback is the user's: whatever it does, the weights are what matters.
void ProgressTeller::Tell() {
  if (!tell_ || threw_ || now_ == told_) return;
  told_ = now_;
  told_at_ = Clock::now();
  try {
    return tell_(told_);
  } catch (const std::exception& error) {
    log::warn("on_progress threw, and is told no more of this reload: {}", error.what());
  } catch (...) {
    log::warn("on_progress threw, and is told no more of this reload");
  }
  threw_ = true;
}

}  // namespace layercast
