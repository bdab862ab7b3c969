// A channel of a limited rate that takes no core: chunks arrive no earlier than a link of that rate would have brought
// them, one after the other. All that one publisher's end sends shares one link. Used by overlap_bench (over `inproc`,
// whose chunks are there at once) and relay_bench.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/transport/all/transports.h"
#include "src/transport/channel/channel.h"

namespace layercast::bench {

// The link of one publisher's end. Resource; thread-safe.
class Uplink {
 public:
  // `bytes_per_second` may change between chunks; 0: no limit.
  explicit Uplink(const double& bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  // Queues so many bytes behind those that wait already, and returns when they will have been sent.
  Deadline::Clock::time_point Queue(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    idle_from_ = std::max(idle_from_, Deadline::Clock::now());
    if (bytes_per_second_ > 0) {
      idle_from_ += std::chrono::duration_cast<Deadline::Clock::duration>(
          std::chrono::duration<double>(static_cast<double>(bytes) / bytes_per_second_));
    }
    return idle_from_;
  }

 private:
  const double& bytes_per_second_;
  std::mutex mutex_;
  Deadline::Clock::time_point idle_from_;  // guarded by mutex_
};

// The links of all publishers' ends, by address. Resource; thread-safe.
class Uplinks {
 public:
  explicit Uplinks(const double& bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  Uplink& Of(const std::string& address) {
    const std::lock_guard lock(mutex_);
    return links_.try_emplace(address, bytes_per_second_).first->second;
  }

 private:
  const double& bytes_per_second_;
  std::mutex mutex_;
  std::map<std::string, Uplink> links_;  // guarded by mutex_
};

class ThrottledEnd final : public FetchingEnd {
 public:
  ThrottledEnd(std::unique_ptr<FetchingEnd> inner, Uplink& uplink) : inner_(std::move(inner)), uplink_(uplink) {}

  bool attaches() const override { return inner_->attaches(); }
  void Submit(const ChunkRequest& request) override {
    inner_->Submit(request);
    std::uint64_t bytes = 0;
    for (const Region& region : request.regions) bytes += region.row_bytes * region.rows;
    due_[request.ticket] = uplink_.Queue(bytes);
  }
  std::optional<ChunkCompletion> Poll(Deadline deadline) override {
    if (!arrived_) arrived_ = inner_->Poll(deadline);
    if (!arrived_) return std::nullopt;
    const auto due = due_.find(arrived_->ticket);
    const Clock::duration wait = due->second - Clock::now();
    std::this_thread::sleep_for(std::min<Clock::duration>(wait, deadline.Remaining()));
    if (Clock::now() < due->second) return std::nullopt;
    due_.erase(due);
    return std::exchange(arrived_, std::nullopt);
  }
  void Close() noexcept override { inner_->Close(); }

 private:
  using Clock = Deadline::Clock;

  const std::unique_ptr<FetchingEnd> inner_;
  Uplink& uplink_;
  std::map<std::uint64_t, Clock::time_point> due_;
  std::optional<ChunkCompletion> arrived_;  // one is enough: inner_ brings chunks in the order of the requests
};

class ThrottledTransport final : public Transport {
 public:
  ThrottledTransport(const std::string& inner, std::shared_ptr<Uplinks> uplinks)
      : inner_(std::move(TransportsNamed({&inner, 1}).front())), uplinks_(std::move(uplinks)) {}

  std::string_view name() const override { return inner_->name(); }
  std::string WhyNotBetween(const HostIdentity& mine, const HostIdentity& theirs) const override {
    return inner_->WhyNotBetween(mine, theirs);
  }
  std::unique_ptr<OfferingEnd> Offering(const OfferingOptions& options) const override {
    return inner_->Offering(options);
  }
  std::unique_ptr<FetchingEnd> Connect(const std::string& address, Deadline deadline) const override {
    return std::make_unique<ThrottledEnd>(inner_->Connect(address, deadline), uplinks_->Of(address));
  }

 private:
  const std::unique_ptr<Transport> inner_;
  const std::shared_ptr<Uplinks> uplinks_;
};

// The channel of one receiver. Receivers that share `uplinks` share the links of those that they take from.
inline std::vector<std::unique_ptr<Transport>> Throttled(const std::string& channel, std::shared_ptr<Uplinks> uplinks) {
  std::vector<std::unique_ptr<Transport>> transports;
  transports.push_back(std::make_unique<ThrottledTransport>(channel, std::move(uplinks)));
  return transports;
}
inline std::vector<std::unique_ptr<Transport>> Throttled(const std::string& channel, const double& bytes_per_second) {
  return Throttled(channel, std::make_shared<Uplinks>(bytes_per_second));
}

}  // namespace layercast::bench
