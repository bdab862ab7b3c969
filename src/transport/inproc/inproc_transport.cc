#include "src/transport/inproc/inproc_transport.h"

#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "layercast/error.h"
#include "src/transport/channel/connection_guard.h"
#include "src/transport/channel/offer_views.h"

namespace layercast {
namespace {

// What one OfferingEnd offers. Thread-safe. It is owned by the OfferingEnd and by the receivers connected to it,
// because these must be able to learn that the OfferingEnd has gone.
class Exchange {
 public:
  void Add(const Offer& offer) {
    const std::lock_guard lock(mutex_);
    if (!offers_.emplace(offer.id, offer).second) {
      throw Error(ErrorCode::kInvalidArgument, "offer " + std::to_string(offer.id) + " is there already");
    }
  }
  void Remove(std::uint64_t offer_id) {
    const std::lock_guard lock(mutex_);
    offers_.erase(offer_id);
  }
  void End() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    offers_.clear();
  }
  // To be called when a receiver has read all that it will read. Taking the lock orders these reads before any later
  // removal of an offer; without it, only the session's messages would.
  void Part() const { const std::lock_guard lock(mutex_); }
  void ExpectThere() const {
    const std::lock_guard lock(mutex_);
    if (ended_) throw Error(ErrorCode::kUnavailable, "the publisher is gone");
  }
  // Adds to `used` what keeps the views' memory mapped.
  std::vector<RegionView> Views(std::uint64_t offer_id, std::span<const Region> regions,
                                std::set<std::shared_ptr<const void>>& used) const {
    ExpectThere();
    const std::lock_guard lock(mutex_);
    const auto offer = offers_.find(offer_id);
    if (offer == offers_.end()) {
      throw Error(ErrorCode::kNotFound, "offer " + std::to_string(offer_id) + " is not there");
    }
    used.insert(offer->second.mappings.begin(), offer->second.mappings.end());
    return ViewsOf(offer->second.tensors, regions);
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::uint64_t, Offer> offers_;  // guarded by mutex_
  bool ended_ = false;                     // guarded by mutex_
};

// The offering ends of this process, by address. Thread-safe. This is the data plane's only process-wide table:
// publisher and receiver may have made their transports independently, and share nothing but the process.
class Listeners {
 public:
  static Listeners& OfThisProcess() {
    static Listeners listeners;
    return listeners;
  }
  std::string Add(const std::shared_ptr<Exchange>& exchange) {
    const std::lock_guard lock(mutex_);
    // The address names the process, so that another process to which it has strayed does not take it for one of its
    // own.
    const std::string address = "inproc://" + HostIdentity::Mine().process + "/" + std::to_string(next_++);
    exchanges_[address] = exchange;
    return address;
  }
  void Remove(const std::string& address) {
    const std::lock_guard lock(mutex_);
    exchanges_.erase(address);
  }
  std::shared_ptr<Exchange> Find(const std::string& address) {
    const std::lock_guard lock(mutex_);
    const auto found = exchanges_.find(address);
    if (found == exchanges_.end()) {
      throw Error(ErrorCode::kUnavailable, "inproc: nobody offers at " + address + " in this process");
    }
    return found->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Exchange>> exchanges_;  // guarded by mutex_
  std::uint64_t next_ = 1;                                      // guarded by mutex_
};

class InprocOfferingEnd final : public OfferingEnd {
 public:
  InprocOfferingEnd() : address_(Listeners::OfThisProcess().Add(exchange_)) {}
  ~InprocOfferingEnd() override {
    Listeners::OfThisProcess().Remove(address_);
    exchange_->End();
  }
  std::string address() const override { return address_; }
  void Add(const Offer& offer) override { exchange_->Add(offer); }
  void Remove(std::uint64_t offer_id) override { exchange_->Remove(offer_id); }

 private:
  const std::shared_ptr<Exchange> exchange_ = std::make_shared<Exchange>();
  const std::string address_;
};

class InprocFetchingEnd final : public FetchingEnd {
 public:
  InprocFetchingEnd(const std::string& address, std::shared_ptr<Exchange> exchange)
      : guard_("inproc: publisher at " + address), exchange_(std::move(exchange)) {}

  bool attaches() const override { return true; }

  void Submit(const ChunkRequest& request) override {
    guard_.Run([&] { done_.push_back({request.ticket, exchange_->Views(request.offer_id, request.regions, used_)}); });
  }

  std::optional<ChunkCompletion> Poll(Deadline /*deadline*/) override {
    guard_.Run([&] { exchange_->ExpectThere(); });
    if (done_.empty()) return std::nullopt;
    ChunkCompletion completion = std::move(done_.front());
    done_.pop_front();
    return completion;
  }

  void Close() noexcept override {
    done_.clear();
    used_.clear();
    guard_.Close();
    exchange_->Part();
  }

 private:
  ConnectionGuard guard_;
  const std::shared_ptr<Exchange> exchange_;
  std::set<std::shared_ptr<const void>> used_;  // what keeps the memory of all views mapped until Close
  std::deque<ChunkCompletion> done_;
};

class InprocTransport final : public Transport {
 public:
  std::string_view name() const override { return "inproc"; }
  std::string WhyNotBetween(const HostIdentity& mine, const HostIdentity& theirs) const override {
    return mine == theirs ? "" : "another process: " + theirs.process + ", not " + mine.process;
  }
  std::unique_ptr<OfferingEnd> Offering(const OfferingOptions& /*options*/) const override {
    return std::make_unique<InprocOfferingEnd>();
  }
  std::unique_ptr<FetchingEnd> Connect(const std::string& address, Deadline /*deadline*/) const override {
    return std::make_unique<InprocFetchingEnd>(address, Listeners::OfThisProcess().Find(address));
  }
};

}  // namespace

std::unique_ptr<Transport> MakeInprocTransport() { return std::make_unique<InprocTransport>(); }

}  // namespace layercast
