// How long each stage took, in all. One thread only.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace layercast {

// Those that are entered again and again.
enum class Stage : std::uint8_t { kLayerBuffer, kMaterialize, kFuseAndShard, kQuantize, kCommit };

class StageClock {
 public:
  using Clock = std::chrono::steady_clock;

  // Adds the time until it goes out of scope to a stage.
  class Scope {
   public:
    explicit Scope(double& milliseconds) : milliseconds_(&milliseconds), begin_(Clock::now()) {}
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { Add(Clock::now()); }

    // From now on it is another stage's time.
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
  // By name, of the stages that took any.
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
  std::array<double, kNames.size()> milliseconds_{};  // looked up by number: this is done for every piece
};

}  // namespace layercast
