// The publisher's end of the ucx channel: a listening socket, and one service thread ("lc-ucx") that owns every
// receiver's connection.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "src/transport/channel.h"
#include "src/transport/control_socket.h"
#include "src/transport/offer_book.h"
#include "src/transport/ucx/receiver.h"
#include "src/transport/wake_fd.h"

namespace layercast::ucx_channel {

// Offers that are removed while receivers hold pieces of them: their connections go. Thread-safe.
class Overdue {
 public:
  void Add(const std::shared_ptr<Offered>& offered);
  std::vector<std::shared_ptr<Offered>> Take();

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<Offered>> offers_;  // guarded by mutex_; second owner: the removing thread
};

// Serves every receiver a few pieces at a time, in turn: nobody's slowness is another's. One thread only (the
// service's).
class Service {
 public:
  Service(UniqueFd listener, const Token& key, OfferBook& book, Overdue& overdue, const WakeFd& wake,
          const std::atomic<FailPoints*>& failpoints)
      : listener_(std::move(listener)),
        key_(key),
        book_(book),
        overdue_(overdue),
        wake_(wake),
        failpoints_(failpoints) {}
  void Run(const std::stop_token& stop);

 private:
  bool ProgressAll();  // true when something moved
  bool SpinAll();
  bool ArmAll();
  // Waits for sockets and UCX, no longer than that, and takes what the sockets have.
  void TakeMessages(std::chrono::milliseconds timeout);
  void Accept();
  void CutOverdue();
  // Runs `step` for each receiver; what it throws costs that one's connection.
  template <typename Step>
  void ForEach(const Step& step);

  const UniqueFd listener_;
  const Token key_;
  OfferBook& book_;
  Overdue& overdue_;
  const WakeFd& wake_;
  const std::atomic<FailPoints*>& failpoints_;
  std::list<Receiver> receivers_;
};

// Thread-safe.
class UcxOfferingEnd final : public OfferingEnd {
 public:
  explicit UcxOfferingEnd(const std::string& bind_host);
  ~UcxOfferingEnd() override;
  std::string address() const override { return address_; }
  void Add(const Offer& offer) override { book_.Add(offer); }
  void Remove(std::uint64_t offer_id) override;
  void Arm(FailPoints& failpoints) override { failpoints_ = &failpoints; }

 private:
  WakeFd wake_;
  OfferBook book_;
  Overdue overdue_;
  std::string address_;
  std::atomic<FailPoints*> failpoints_{nullptr};
  std::jthread thread_;
};

}  // namespace layercast::ucx_channel
