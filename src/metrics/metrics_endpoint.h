// Where Prometheus asks a process for its metrics: http://HOST:PORT/metrics. Values are collected when it asks, so a
// process that nobody asks pays nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/metrics/metric_samples.h"

namespace layercast {

// Resource; thread-safe. Two threads of civetweb's take connections and call `collect`, one at a time.
class MetricsEndpoint {
 public:
  using Collect = std::function<MetricSamples()>;

  // `bind` is "HOST:PORT"; port 0 picks one. Nobody is asked for a key there, so an address beyond loopback is for
  // those who say so (`open`). What `collect` throws is logged, and the answer then has no value. Throws
  // kInvalidArgument for an address that is none or that leaves the host, kUnavailable if it cannot be bound, and
  // kUnsupported, naming what is missing, in a build without prometheus-cpp.
  MetricsEndpoint(const std::string& bind, bool open, Collect collect);
  ~MetricsEndpoint();  // `collect` is not called any more once this returns
  MetricsEndpoint(const MetricsEndpoint&) = delete;
  MetricsEndpoint& operator=(const MetricsEndpoint&) = delete;

  // "127.0.0.1:41234"
  std::string address() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace layercast
