// shm, but for that it copies: what comes by it costs its publisher something, as between hosts. What is mapped stays
// readable, whoever goes in the middle of a copy.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "src/tensor/region_views.h"
#include "tests/support/session/other_transport.h"

namespace layercast::testing {

class CopyingShm final : public OtherTransport {
 public:
  CopyingShm() : OtherTransport("shm") {}
  std::unique_ptr<FetchingEnd> Connect(const std::string& address, Deadline deadline) const override {
    return std::make_unique<End>(honest_->Connect(address, deadline));
  }

 private:
  class End final : public FetchingEnd {
   public:
    explicit End(std::unique_ptr<FetchingEnd> attached) : attached_(std::move(attached)) {}
    bool attaches() const override { return false; }
    bool writes_to(const Device& /*device*/) const override { return true; }  // what tests call so is the host's memory
    void Submit(const ChunkRequest& request) override {
      destinations_[request.ticket] = request.destination.data();
      attached_->Submit(request);
    }
    std::optional<ChunkCompletion> Poll(Deadline deadline) override {
      std::optional<ChunkCompletion> completion = attached_->Poll(deadline);
      if (!completion) return completion;
      completion->views = PackAll(completion->views, destinations_.extract(completion->ticket).mapped());
      return completion;
    }
    void Close() noexcept override { attached_->Close(); }

   private:
    const std::unique_ptr<FetchingEnd> attached_;
    std::map<std::uint64_t, std::byte*> destinations_;
  };
};

}  // namespace layercast::testing
