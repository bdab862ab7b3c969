// Lends what a rank serves to ranks of the same layout, as it is, so that an engine can start from another one
// (`--load-format remote --from-engine`): its kernel tensors, and slots of adapters. Each rank process has one; the
// receiving half is reload/sources/lender_source.cc.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>

#include "engine_side/server/rank/lent_buffers.h"
#include "layercast/captured_buffers.h"
#include "layercast/receiver.h"
#include "src/base/failpoint.h"
#include "src/base/threads/worker_pool.h"
#include "src/session/offer/offer_service.h"

namespace layercast {

struct LenderOptions {
  std::string endpoint = "tcp://127.0.0.1:0";
  Keys keys{};
};

// Resource; thread-safe.
class WeightsLender {
 public:
  // Lives while a receiver writes its buffers, and holds their lock. Afterwards what the receiver then has is lent.
  class Change {
   public:
    Change(WeightsLender& lender, const Receiver& receiver)
        : lent_(lender.weights_), receiver_(receiver), writing_(lent_.Write()) {}
    ~Change() { lent_.Become(receiver_.clean(), receiver_.noise(), writing_); }
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;

   private:
    LentBuffers& lent_;
    const Receiver& receiver_;
    const std::unique_lock<std::shared_mutex> writing_;
  };

  // The memory of `captured` must outlive this. `config` is the text of the engine's config.json, for borrowers.
  explicit WeightsLender(const CapturedBuffers& captured, std::string config = {})
      : weights_(captured), config_(std::move(config)) {}
  ~WeightsLender();
  WeightsLender(const WeightsLender&) = delete;
  WeightsLender& operator=(const WeightsLender&) = delete;

  // Offers what the buffers hold now under the version's lineage and step, until the buffers are written, with the
  // noise that borrowers are to add. Returns the endpoint. The first call starts the service, with its options; later
  // calls ignore theirs. Throws as OfferService does.
  std::string Lend(const Version& version, const LenderOptions& options) { return Lend(weights_, version, options); }
  // Likewise other buffers, which outlive this.
  std::string Lend(LentBuffers& buffers, const Version& as, const LenderOptions& options);

 private:
  LentBuffers weights_;
  const std::string config_;
  WorkerPool pool_{1};  // computes digests; one is enough, since borrowers are rare
  FailPoints failpoints_{FailPoints::FromEnvironment("lender")};
  std::mutex mutex_;
  std::unique_ptr<OfferService> service_;  // guarded by mutex_
  // What is offered of each; guarded by mutex_. The second owner is the service.
  std::map<const LentBuffers*, std::shared_ptr<OfferedVersion>> offered_;
};

}  // namespace layercast
