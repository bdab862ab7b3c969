// A channel of a limited rate that costs no core: `inproc`, whose chunks are there at once, and here no earlier than a
// link of that rate would have brought them, one after the other. Used by overlap_bench.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/transport/channel.h"

namespace layercast::bench {

class ThrottledEnd final : public FetchingEnd {
 public:
  // `bytes_per_second` may change between chunks; 0: no limit.
  ThrottledEnd(std::unique_ptr<FetchingEnd> inner, const double& bytes_per_second)
      : inner_(std::move(inner)), bytes_per_second_(bytes_per_second) {}

  bool attaches() const override { return inner_->attaches(); }
  void Submit(const ChunkRequest& request) override {
    inner_->Submit(request);
    std::uint64_t bytes = 0;
    for (const Region& region : request.regions) bytes += region.row_bytes * region.rows;
    idle_from_ = std::max(idle_from_, Clock::now());
    if (bytes_per_second_ > 0) idle_from_ += Seconds(static_cast<double>(bytes) / bytes_per_second_);
    due_[request.ticket] = idle_from_;
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
  static Clock::duration Seconds(double seconds) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }

  const std::unique_ptr<FetchingEnd> inner_;
  const double& bytes_per_second_;
  Clock::time_point idle_from_;  // the link is busy with what was asked for until then
  std::map<std::uint64_t, Clock::time_point> due_;
  std::optional<ChunkCompletion> arrived_;  // inner_ brings them in the order that they were asked for
};

class ThrottledTransport final : public Transport {
 public:
  explicit ThrottledTransport(const double& bytes_per_second)
      : inner_(std::move(TransportsNamed(std::vector<std::string>{"inproc"}).front())),
        bytes_per_second_(bytes_per_second) {}

  std::string_view name() const override { return inner_->name(); }
  bool Viable(const HostIdentity& mine, const HostIdentity& theirs, std::string& reason) const override {
    return inner_->Viable(mine, theirs, reason);
  }
  std::unique_ptr<OfferingEnd> Offering(const std::string& bind_host) const override {
    return inner_->Offering(bind_host);
  }
  std::unique_ptr<FetchingEnd> Connect(const std::string& address, Deadline deadline) const override {
    return std::make_unique<ThrottledEnd>(inner_->Connect(address, deadline), bytes_per_second_);
  }

 private:
  const std::unique_ptr<Transport> inner_;
  const double& bytes_per_second_;
};

inline std::vector<std::unique_ptr<Transport>> Throttled(const double& bytes_per_second) {
  std::vector<std::unique_ptr<Transport>> transports;
  transports.push_back(std::make_unique<ThrottledTransport>(bytes_per_second));
  return transports;
}

}  // namespace layercast::bench
