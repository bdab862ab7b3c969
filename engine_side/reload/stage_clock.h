// How long each stage took, in all. One thread only.
#pragma once

#include <chrono>
#include <map>
#include <string>

namespace layercast {

class StageClock {
 public:
  using Clock = std::chrono::steady_clock;

  // Adds the time until it goes out of scope to a stage.
  class Scope {
   public:
    explicit Scope(double& milliseconds) : milliseconds_(milliseconds), begin_(Clock::now()) {}
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { milliseconds_ += std::chrono::duration<double, std::milli>(Clock::now() - begin_).count(); }

   private:
    double& milliseconds_;
    const Clock::time_point begin_;
  };

  Scope Time(const std::string& stage) { return Scope(milliseconds_[stage]); }
  void Add(const std::string& stage, double milliseconds) { milliseconds_[stage] += milliseconds; }
  const std::map<std::string, double>& milliseconds() const { return milliseconds_; }

 private:
  std::map<std::string, double> milliseconds_;
};

}  // namespace layercast
