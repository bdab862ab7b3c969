#include "engine_side/server/rank/lent_buffers.h"

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/base/check.h"

namespace layercast {

// One borrower's walk over every buffer in turn. It fails once the buffers are no longer those that were lent.
class LentBuffers::Walk final : public WeightsIterator {
 public:
  Walk(LentBuffers& lent, std::uint64_t writes) : lent_(lent), writes_(writes) {}

  std::optional<NamedTensor> Next() override {
    const std::shared_lock lock(lent_.buffers_);
    if (lent_.writes_ != writes_) {
      throw Error(ErrorCode::kFailedPrecondition,
                  "the engine that lends these weights has taken another version meanwhile: ask it again");
    }
    if (next_ == lent_.captured_.buffers().size()) return std::nullopt;
    const CapturedBuffer& buffer = lent_.captured_.buffers()[next_++];
    bytes_ = lent_.captured_.Read(buffer);
    return NamedTensor{.name = buffer.name,
                       .tensor = {.dtype = buffer.dtype, .shape = buffer.shape, .data = bytes_.data(), .device = {}},
                       .owner = nullptr};
  }

 private:
  LentBuffers& lent_;
  const std::uint64_t writes_;  // the count when this version was lent
  std::size_t next_ = 0;
  std::vector<std::byte> bytes_;  // of the buffer that was returned last
};

void LentBuffers::Become(CapturedBuffers captured) { Become(std::move(captured), std::nullopt, Write()); }

void LentBuffers::Become(CapturedBuffers captured, const std::optional<Noise>& noise,
                         const std::unique_lock<std::shared_mutex>& writing) {
  LAYERCAST_CHECK(writing.owns_lock());
  captured_ = std::move(captured);
  noise_ = noise;
  if (noise_) noise_->own = 0;
}

std::shared_ptr<OfferedVersion> LentBuffers::Offered(const Version& as, const std::string& config) {
  std::vector<TensorSpec> specs;
  const std::shared_lock lock(buffers_);
  for (const CapturedBuffer& buffer : captured_.buffers()) specs.push_back({buffer.name, buffer.dtype, buffer.shape});
  return std::make_shared<OfferedVersion>(
      Manifest::OfSpecs(as.lineage, as.step, specs).With(noise_),
      [this, writes = writes_.load()](std::span<const std::string> /*order*/) {
        return std::make_unique<Walk>(*this, writes);
      },
      /*layer_order=*/false, Provenance{.config = config});
}

std::unique_lock<std::shared_mutex> LentBuffers::Write() {
  ++writes_;  // or one reader after another could keep the writer waiting
  std::unique_lock lock(buffers_);
  ++writes_;
  return lock;
}

}  // namespace layercast
