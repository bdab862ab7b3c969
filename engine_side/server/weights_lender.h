// Lends what a rank serves to ranks of the same layout, kernel tensors as they are: how an engine starts from another
// one (`--load-format remote --from-engine`). A rank process has one; the receiving half is reload/lent_weights.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>

#include "layercast/captured_buffers.h"
#include "src/base/failpoint.h"
#include "src/base/worker_pool.h"
#include "src/session/offer_service.h"

namespace layercast {

struct LenderOptions {
  std::string endpoint = "tcp://127.0.0.1:0";
  bool allow_remote = false;
};

// Resource; thread-safe. Keeps no copy: each borrower walks the captured buffers, and a commit ends the walk.
class WeightsLender {
 public:
  // `captured` outlives it.
  explicit WeightsLender(const CapturedBuffers& captured) : captured_(captured) {}
  ~WeightsLender();
  WeightsLender(const WeightsLender&) = delete;
  WeightsLender& operator=(const WeightsLender&) = delete;

  // What the buffers hold now can be had under that version's lineage and step, until they are written. Returns where.
  // The service starts at the first call: with its options. Throws as OfferService does.
  std::string Lend(const Version& version, const LenderOptions& options);

  // To be held by whoever writes the buffers. Waits for a tensor that is being read; the walks under way then fail.
  std::unique_lock<std::shared_mutex> Write();

 private:
  class Walk;
  std::shared_ptr<OfferedVersion> Offered(const Version& version);

  const CapturedBuffers& captured_;
  std::shared_mutex buffers_;  // shared: reads the captured buffers
  // Grows when somebody is about to write them, and when he can: borrowers are then gone, or about to be.
  std::atomic<std::uint64_t> writes_{0};
  WorkerPool pool_{1};  // digests; borrowers are rare
  FailPoints failpoints_;
  std::mutex mutex_;
  std::unique_ptr<OfferService> service_;    // guarded by mutex_
  std::shared_ptr<OfferedVersion> offered_;  // guarded by mutex_; the second owner is the service
};

}  // namespace layercast
