// Lends the kernel tensors that a rank serves to ranks of the same layout, as they are, so that an engine can start
// from another one (`--load-format remote --from-engine`). Each rank process has one; the receiving half is
// reload/sources/lender_source.cc.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>

#include "layercast/captured_buffers.h"
#include "src/base/failpoint.h"
#include "src/base/threads/worker_pool.h"
#include "src/session/offer/offer_service.h"

namespace layercast {

struct LenderOptions {
  std::string endpoint = "tcp://127.0.0.1:0";
  bool allow_remote = false;
};

// Resource; thread-safe. Keeps no copy: each borrower walks the captured buffers, and a commit ends the walk.
class WeightsLender {
 public:
  // `captured` must outlive this. `config` is the text of the engine's config.json, for borrowers.
  explicit WeightsLender(const CapturedBuffers& captured, std::string config = {})
      : captured_(captured), config_(std::move(config)) {}
  ~WeightsLender();
  WeightsLender(const WeightsLender&) = delete;
  WeightsLender& operator=(const WeightsLender&) = delete;

  // Offers what the buffers hold now under the version's lineage and step, until the buffers are written. Returns the
  // endpoint. The first call starts the service, with its options; later calls ignore theirs. Throws as OfferService
  // does.
  std::string Lend(const Version& version, const LenderOptions& options);

  // A lock that whoever writes the buffers must hold. Waits while a tensor is being read; walks under way then fail.
  std::unique_lock<std::shared_mutex> Write();

 private:
  class Walk;
  std::shared_ptr<OfferedVersion> Offered(const Version& version);

  const CapturedBuffers& captured_;
  const std::string config_;
  std::shared_mutex buffers_;  // locked shared by those who read the captured buffers
  // Incremented when somebody is about to write the buffers, and again once the lock is held. A walk over what was lent
  // at another count fails.
  std::atomic<std::uint64_t> writes_{0};
  WorkerPool pool_{1};  // computes digests; one is enough, since borrowers are rare
  FailPoints failpoints_{FailPoints::FromEnvironment("lender")};
  std::mutex mutex_;
  std::unique_ptr<OfferService> service_;    // guarded by mutex_
  std::shared_ptr<OfferedVersion> offered_;  // guarded by mutex_; the second owner is the service
};

}  // namespace layercast
