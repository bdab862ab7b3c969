#include "engine_side/server/rank/weights_lender.h"

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "layercast/error.h"

namespace layercast {

// One borrower's walk over every buffer in turn. It fails once the buffers are no longer those that were lent.
class WeightsLender::Walk final : public WeightsIterator {
 public:
  Walk(WeightsLender& lender, std::uint64_t writes) : lender_(lender), writes_(writes) {}

  std::optional<NamedTensor> Next() override {
    if (next_ == lender_.captured_.buffers().size()) return std::nullopt;
    const CapturedBuffer& buffer = lender_.captured_.buffers()[next_++];
    const std::shared_lock lock(lender_.buffers_);
    if (lender_.writes_ != writes_) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "the engine that lends these weights has taken another version meanwhile: ask it again");
    }
    bytes_ = lender_.captured_.Read(buffer);
    return NamedTensor{.name = buffer.name,
                       .tensor = {.dtype = buffer.dtype, .shape = buffer.shape, .data = bytes_.data(), .device = {}},
                       .owner = nullptr};
  }

 private:
  WeightsLender& lender_;
  const std::uint64_t writes_;  // the lender's count when this version was lent
  std::size_t next_ = 0;
  std::vector<std::byte> bytes_;  // of the buffer that was returned last
};

WeightsLender::~WeightsLender() {
  if (service_ != nullptr) service_->Stop();  // walks must end before what they read is destroyed
}

std::string WeightsLender::Lend(const Version& version, const LenderOptions& options) {
  const std::lock_guard lock(mutex_);
  if (service_ == nullptr) {
    service_ = std::make_unique<OfferService>(
        OfferServiceOptions{.endpoint = options.endpoint, .allow_remote = options.allow_remote, .name = "lender"},
        pool_, failpoints_);
  }
  if (offered_ != nullptr) service_->Withdraw(offered_);
  offered_ = Offered(version);
  service_->Offer(offered_);
  return service_->endpoint();
}

std::shared_ptr<OfferedVersion> WeightsLender::Offered(const Version& version) {
  std::vector<TensorSpec> specs;
  for (const CapturedBuffer& buffer : captured_.buffers()) specs.push_back({buffer.name, buffer.dtype, buffer.shape});
  const std::shared_lock lock(buffers_);
  return std::make_shared<OfferedVersion>(
      Manifest::OfSpecs(version.lineage, version.step, specs),
      [this, writes = writes_.load()](std::span<const std::string> /*order*/) {
        return std::make_unique<Walk>(*this, writes);
      },
      /*layer_order=*/false, Provenance{.config = config_});
}

std::unique_lock<std::shared_mutex> WeightsLender::Write() {
  ++writes_;  // or one reader after another could keep the writer waiting
  std::unique_lock lock(buffers_);
  ++writes_;
  return lock;
}

}  // namespace layercast
