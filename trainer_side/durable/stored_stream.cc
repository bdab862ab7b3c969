#include "trainer_side/durable/stored_stream.h"

#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "layercast/error.h"
#include "src/base/log.h"
#include "src/tensor/manifest/manifest_entry.h"
#include "src/tensor/tensor_part.h"

namespace layercast {

// One walk, of which each tensor is written before it goes on. Resource; one thread only.
class StoredStream::Passing final : public WeightsIterator {
 public:
  Passing(std::shared_ptr<StoredStream> stream, std::unique_ptr<WeightsIterator> walk)
      : stream_(std::move(stream)),
        walk_(std::move(walk)),
        summaries_(stream_->record_.manifest.size()),
        passed_(summaries_.size()) {}

  ~Passing() override {
    if (done_) return;
    const std::lock_guard lock(stream_->mutex_);  // it has ended too soon: the next one may
    stream_->taken_ = false;
  }

  std::optional<NamedTensor> Next() override {
    std::optional<NamedTensor> named = walk_->Next();
    if (failed_) return named;
    try {
      named ? Write(*named) : End();
    } catch (const std::exception& error) {
      failed_ = true;
      log::warn("{} is not written into the store as it streams: {}", stream_->record_.manifest.version().ToString(),
                error.what());
    }
    return named;
  }

 private:
  // Whatever is wrong with a tensor is for the stream to say.
  void Write(const NamedTensor& named) {
    const Manifest& manifest = stream_->record_.manifest;
    const std::int64_t found = manifest.Find(named.name, named.part);
    if (found < 0) throw Error(ErrorCode::kInvalidArgument, DescribePart(named) + " was not declared");
    const auto tensor = static_cast<std::uint32_t>(found);
    const TensorSpec& spec = manifest.entry(tensor).spec;
    if (passed_[tensor] || named.tensor.dtype != spec.dtype || named.tensor.shape != spec.shape) {
      throw Error(ErrorCode::kInvalidArgument, DescribePart(named) + " came twice, or not as it was declared");
    }
    CheckHasBytes(named.name, named.tensor);
    const TensorView readable = OnHost(named.tensor);
    summaries_[tensor] = SummaryOf(named.name, readable, stream_->parts_.pool);
    stream_->parts_.writer->Put(summaries_[tensor].digest,
                                {readable.data, static_cast<std::size_t>(readable.num_bytes())});
    passed_[tensor] = true;
    ++count_;
  }

  TensorView OnHost(TensorView tensor) {
    if (tensor.device.kind == Device::Kind::kHost) return tensor;
    host_.resize(static_cast<std::size_t>(tensor.num_bytes()));
    stream_->parts_.device.ToHost(tensor.device, tensor.data, host_.size(), host_.data());
    tensor.data = host_.data();
    tensor.device = {};
    return tensor;
  }

  void End() {
    const Manifest& declared = stream_->record_.manifest;
    if (done_ || count_ != declared.size()) return;
    VersionRecord record = stream_->record_;
    record.manifest = Manifest(declared.version().lineage, declared.version().step, declared.layout(),
                               std::move(summaries_), declared.part());
    done_ = true;
    stream_->parts_.on_whole(std::move(record));
  }

  const std::shared_ptr<StoredStream> stream_;
  const std::unique_ptr<WeightsIterator> walk_;
  std::vector<TensorSummary> summaries_;
  std::vector<bool> passed_;
  std::size_t count_ = 0;
  std::vector<std::byte> host_;
  bool failed_ = false;
  bool done_ = false;
};

std::unique_ptr<WeightsIterator> StoredStream::Through(std::unique_ptr<WeightsIterator> walk) {
  if (walk == nullptr) return walk;
  const std::lock_guard lock(mutex_);
  if (std::exchange(taken_, true)) return walk;
  return std::make_unique<Passing>(shared_from_this(), std::move(walk));
}

}  // namespace layercast
