#include "src/metrics/metrics_endpoint.h"

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>
#include <signal.h>

#include <exception>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/base/log.h"
#include "src/net/zmq/host_and_port.h"

namespace layercast {
namespace {

prometheus::MetricType TypeOf(MetricKind kind) {
  switch (kind) {
    case MetricKind::kCounter: return prometheus::MetricType::Counter;
    case MetricKind::kGauge: return prometheus::MetricType::Gauge;
    case MetricKind::kDurations: return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

prometheus::ClientMetric::Histogram HistogramOf(const Durations& durations) {
  prometheus::ClientMetric::Histogram histogram;
  histogram.sample_count = durations.count();
  histogram.sample_sum = durations.sum();
  for (std::size_t i = 0; i < Durations::kBounds.size(); ++i) {
    histogram.bucket.push_back({durations.AtMost(i), Durations::kBounds[i]});
  }
  histogram.bucket.push_back({durations.count(), std::numeric_limits<double>::infinity()});
  return histogram;
}

prometheus::ClientMetric MetricOf(const MetricFamily& family, const MetricSamples::Sample& sample) {
  prometheus::ClientMetric metric;
  const std::vector<std::string_view> names = family.label_names();
  for (std::size_t i = 0; i < names.size(); ++i) {
    metric.label.push_back({std::string(names[i]), sample.labels[i]});
  }
  switch (family.kind) {
    case MetricKind::kCounter: metric.counter.value = sample.value; break;
    case MetricKind::kGauge: metric.gauge.value = sample.value; break;
    case MetricKind::kDurations: metric.histogram = HistogramOf(sample.durations); break;
  }
  return metric;
}

// What prometheus-cpp asks when somebody asks it. Thread-safe.
class Collected final : public prometheus::Collectable {
 public:
  explicit Collected(MetricsEndpoint::Collect collect) : collect_(std::move(collect)) {}

  // Once this returns, what would be asked may go.
  void Stop() {
    const std::lock_guard lock(mutex_);
    collect_ = nullptr;
  }

  std::vector<prometheus::MetricFamily> Collect() const override {
    const std::lock_guard lock(mutex_);
    std::vector<prometheus::MetricFamily> families;
    if (!collect_) return families;
    try {
      const MetricSamples samples = collect_();
      for (const auto& [place, values] : samples.families()) {
        const MetricFamily& family = MetricFamilies()[place];
        prometheus::MetricFamily& one = families.emplace_back();
        one.name = family.name;
        one.help = family.help;
        one.type = TypeOf(family.kind);
        for (const MetricSamples::Sample& value : values) one.metric.push_back(MetricOf(family, value));
      }
    } catch (const std::exception& error) {
      log::warn("metrics: {}", error.what());
      families.clear();
    }
    return families;
  }

 private:
  mutable std::mutex mutex_;
  MetricsEndpoint::Collect collect_;  // guarded by mutex_
};

constexpr const char* kAdvice =
    "and whoever reaches it reads the metrics without any key: bind a loopback address, or say that anybody may "
    "(--metrics-open, metrics_open)";

// civetweb has the whole process ignore SIGPIPE, and needs it not: it sends without that signal. What the process does
// about it is the host's to say, so this puts that back.
class SigpipeKept {
 public:
  SigpipeKept() { ::sigaction(SIGPIPE, nullptr, &before_); }
  ~SigpipeKept() { ::sigaction(SIGPIPE, &before_, nullptr); }
  SigpipeKept(const SigpipeKept&) = delete;
  SigpipeKept& operator=(const SigpipeKept&) = delete;

 private:
  struct sigaction before_ = {};
};

}  // namespace

class MetricsEndpoint::Impl {
 public:
  Impl(const std::string& bind, bool open, Collect collect)
      : host_(BindableHostAndPort("metrics address", bind, open, kAdvice)),
        collected_(std::make_shared<Collected>(std::move(collect))) {
    const SigpipeKept kept;
    try {
      // A client that says nothing keeps a thread for so long.
      exposer_ = std::make_unique<prometheus::Exposer>(std::vector<std::string>{
          "listening_ports", host_, "num_threads", "2", "request_timeout_ms", "5000", "enable_keep_alive", "no"});
    } catch (const std::exception&) {  // which says nothing of the address
      throw Error(ErrorCode::kUnavailable, "metrics address '" + bind +
                                               "': it cannot be bound: is it of this host, and "
                                               "free?");
    }
    exposer_->RegisterCollectable(collected_);
    host_.erase(host_.rfind(':'));
  }
  ~Impl() { collected_->Stop(); }

  std::string address() const { return host_ + ":" + std::to_string(exposer_->GetListeningPorts().front()); }

 private:
  std::string host_;                            // with the port, until that is known
  const std::shared_ptr<Collected> collected_;  // the exposer has a weak reference
  std::unique_ptr<prometheus::Exposer> exposer_;
};

MetricsEndpoint::MetricsEndpoint(const std::string& bind, bool open, Collect collect)
    : impl_(std::make_unique<Impl>(bind, open, std::move(collect))) {}
MetricsEndpoint::~MetricsEndpoint() = default;
std::string MetricsEndpoint::address() const { return impl_->address(); }

}  // namespace layercast
