// Measures how long each stage takes in all, for the report and, if somebody wants one, for a timeline: both are made
// of the same looks at the clock. Used by the pipeline and the receiver. Value; one thread only.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "src/trace/trace_recorder.h"

namespace layercast {

// The stages that are entered many times in one reload.
enum class Stage : std::uint8_t { kLayerBuffer, kMaterialize, kFuseAndShard, kQuantize, kCommit };

class StageClock {
 public:
  using Clock = std::chrono::steady_clock;

  // Where a stage's time goes. Value; refers to the report's number.
  struct Account {
    double* milliseconds;
    TraceLane* lane = nullptr;
  };

  // Adds the time until it goes out of scope to a stage's account.
  class Scope {
   public:
    // `of` says of what the span is, such as a layer; it outlives the scope. Null: nothing is said.
    explicit Scope(Account account, const std::string* of = nullptr)
        : account_(account), of_(of), begin_(Clock::now()) {}
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { Add(Clock::now()); }

    // From now on, the time counts for another stage.
    void Enter(Account account) {
      const Clock::time_point now = Clock::now();
      Add(now);
      account_ = account;
      begin_ = now;
    }

   private:
    void Add(Clock::time_point now) {
      *account_.milliseconds += std::chrono::duration<double, std::milli>(now - begin_).count();
      if (account_.lane != nullptr) account_.lane->Add(begin_, now, of_ == nullptr ? std::string_view() : *of_);
    }

    Account account_;
    const std::string* of_;
    Clock::time_point begin_;
  };

  // `trace` outlives the clock; null: there is no timeline.
  explicit StageClock(TraceRecorder* trace) {
    for (std::size_t i = 0; i < kNames.size(); ++i) lanes_[i] = LaneOf(trace, kNames[i], TraceKind::kStage);
  }

  Account operator[](Stage stage) {
    const auto place = static_cast<std::size_t>(stage);
    return {&milliseconds_[place], lanes_[place]};
  }
  // The milliseconds of the stages that took any, by name.
  std::map<std::string, double> milliseconds() const {
    std::map<std::string, double> named;
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      if (milliseconds_[i] != 0) named[kNames[i]] = milliseconds_[i];
    }
    return named;
  }

 private:
  static constexpr std::array<const char*, 5> kNames = {"layer_buffer", "materialize", "fuse_and_shard", "quantize",
                                                        "commit"};
  std::array<double, kNames.size()> milliseconds_{};  // an array, because it is looked up for every piece
  std::array<TraceLane*, kNames.size()> lanes_{};
};

}  // namespace layercast
