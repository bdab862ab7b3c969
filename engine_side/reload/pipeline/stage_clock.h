// Measures how long each stage takes in all. Used by the pipeline and the receiver. Value; one thread only.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace layercast {

// The stages that are entered many times in one reload.
enum class Stage : std::uint8_t { kLayerBuffer, kMaterialize, kFuseAndShard, kQuantize, kCommit };

class StageClock {
 public:
  using Clock = std::chrono::steady_clock;

  // Adds the time until it goes out of scope to a stage's milliseconds.
  class Scope {
   public:
    explicit Scope(double& milliseconds) : milliseconds_(&milliseconds), begin_(Clock::now()) {}
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { Add(Clock::now()); }

    // From now on, the time counts for another stage.
    void Enter(double& milliseconds) {
      const Clock::time_point now = Clock::now();
      Add(now);
      milliseconds_ = &milliseconds;
      begin_ = now;
    }

   private:
    void Add(Clock::time_point now) {
      *milliseconds_ += std::chrono::duration<double, std::milli>(now - begin_).count();
    }

    double* milliseconds_;
    Clock::time_point begin_;
  };

  double& operator[](Stage stage) { return milliseconds_[static_cast<std::size_t>(stage)]; }
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
};

}  // namespace layercast
