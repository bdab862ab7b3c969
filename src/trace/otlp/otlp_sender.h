// Sends traces to OpenTelemetry's collectors, by OTLP over HTTP. A sync never waits for it. Used by the programs.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "src/trace/otlp/otlp_target.h"

namespace layercast {

// Resource; thread-safe. The thread "lc-otlp" sends.
class OtlpSender {
 public:
  // Throws kUnsupported in a build without cpp-httplib.
  explicit OtlpSender(OtlpTarget target);
  ~OtlpSender();  // sends what waits, but waits for no answer longer than 2 seconds
  OtlpSender(const OtlpSender&) = delete;
  OtlpSender& operator=(const OtlpSender&) = delete;

  // Takes a body (OtlpBody). Never waits: one that finds the queue full is dropped, and counted.
  void Put(std::string body);
  // How many bodies were dropped, because too many waited or because nobody took them.
  std::uint64_t dropped() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Null: there is no target.
inline std::unique_ptr<OtlpSender> MakeOtlpSender(std::optional<OtlpTarget> target) {
  return target ? std::make_unique<OtlpSender>(*std::move(target)) : nullptr;
}

}  // namespace layercast
