// A pause of generation that ends by itself: by a resume, by the next pause, or when its lease is over, so that nobody
// who goes away leaves an engine standing still. Used by the generator, whose mutex guards it.
#pragma once

#include <chrono>
#include <future>
#include <optional>

#include "layercast/error.h"

namespace layercast {

// What happens to sequences under way when a version commits or a pause begins.
enum class PauseMode { kWait, kAbort, kKeep };

// Resource.
class PauseLease {
 public:
  // Begins a pause, in the place of any other. The future is ready once it holds, or throws why it never will.
  std::future<void> Begin(PauseMode mode, std::chrono::milliseconds lease);
  // Whoever waits for the pause to hold is told why it never will.
  void End(const Error& why);
  // Ends a pause whose lease is over before it held, too.
  void EndIfOver();

  // How sequences are paused now; nullopt: they are not.
  std::optional<PauseMode> mode() const;
  bool Paused() const { return mode().has_value(); }
  // The mode of a pause that somebody waits for.
  std::optional<PauseMode> awaited() const { return holds_ ? mode_ : std::nullopt; }
  // The pause holds now, if it is still one of that mode.
  void Hold(PauseMode mode);

 private:
  std::optional<PauseMode> mode_;
  std::chrono::steady_clock::time_point ends_;
  std::optional<std::promise<void>> holds_;  // while the pause does not hold yet
};

}  // namespace layercast
