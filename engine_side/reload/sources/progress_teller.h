// Tells the user's callback how far a reload has come (ReceiverOptions::on_progress), not too often. Used by the stager
// and the receiver. Resource; one thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "layercast/progress.h"

namespace layercast {

class ProgressTeller {
 public:
  // While bytes come, it is told at least so often, and for each further hundredth of them.
  static constexpr std::chrono::milliseconds kPeriod{100};

  // `tell` may be empty. If it throws, that is logged, and it hears nothing more of the reload.
  explicit ProgressTeller(std::function<void(const ReloadProgress&)> tell) : tell_(std::move(tell)) {}

  // A new reload begins.
  void Begin();
  // The reload has come to that stage, one of kReloadStages. Told at once.
  void Enter(const char* stage, const Version& version);
  void Expect(std::uint64_t bytes_total, std::uint64_t layers_total);
  // So much has come by now, in all.
  void Came(std::uint64_t bytes, std::uint64_t layers);

 private:
  using Clock = std::chrono::steady_clock;
  bool MayTell() const;
  void Tell();

  const std::function<void(const ReloadProgress&)> tell_;
  ReloadProgress now_;
  ReloadProgress told_;
  Clock::time_point told_at_;
  bool threw_ = false;
};

}  // namespace layercast
