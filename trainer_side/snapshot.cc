#include "trainer_side/snapshot.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "layercast/error.h"
#include "src/base/memory/buffer_for.h"
#include "src/tensor/kernels/stream_copy.h"
#include "src/tensor/manifest/manifest_entry.h"
#include "trainer_side/declared_weights.h"

namespace layercast {
namespace {

std::string Describe(const Device& device) {
  if (device.kind == Device::Kind::kHost) return "in host memory";
  return "on CUDA device " + std::to_string(device.index);
}

// A snapshot while it is being made.
class Growing {
 public:
  Growing(bool borrowed, const SnapshotPlaces& places) : borrowed_(borrowed), places_(places) {}

  void Add(NamedTensor&& named) {
    CheckHasBytes(named.name, named.tensor);
    if (named_.empty()) device_ = PlaceOf(named);
    if (borrowed_) {
      ExpectHere(named);
      ExpectAligned(named);
      snapshot_.owners.push_back(named.owner);
    } else {
      ExpectCopyable(named);
      Copy(named);
    }
    // The copy is what is digested, because the source may change.
    if (!OnDevice()) summaries_.push_back(SummaryOf(named.name, named.tensor, places_.pool));
    if (!OnDevice() && !borrowed_) ShareLast(named.tensor);
    snapshot_.tensors.push_back({named.tensor.data, static_cast<std::uint64_t>(named.tensor.num_bytes())});
    named_.push_back(std::move(named));
  }

  Snapshot Finish(const PublishOptions& options, std::shared_ptr<const ManifestLayout> known) {
    if (OnDevice()) summaries_ = places_.device.SummariesOf(device_, named_);
    snapshot_.device = device_;
    auto layout = LayOut(TakeLayout(), options.part.ranks != 1, std::move(known));
    snapshot_.manifest =
        Manifest(options.lineage, options.step, std::move(layout), std::move(summaries_), options.part);
    return std::move(snapshot_);
  }

  bool empty() const { return named_.empty(); }

 private:
  std::vector<LaidOutTensor> TakeLayout() {
    std::vector<LaidOutTensor> tensors;
    tensors.reserve(named_.size());
    for (NamedTensor& named : named_) {
      tensors.push_back(
          {{std::move(named.name), named.tensor.dtype, std::move(named.tensor.shape)}, std::move(named.part)});
    }
    return tensors;
  }

  bool OnDevice() const { return device_.kind != Device::Kind::kHost; }

  Device PlaceOf(const NamedTensor& named) const {
    if (named.tensor.device.kind == Device::Kind::kHost || places_.keeps(named.tensor.device))
      return named.tensor.device;
    if (!borrowed_) return {};
    throw Error(ErrorCode::kUnsupported, "'" + named.name + "' is borrowed " + Describe(named.tensor.device) +
                                             ", where not all of the publisher's channels reach: name those that do "
                                             "(cuda_ipc, nccl), or have it copied");
  }

  void ExpectHere(const NamedTensor& named) const {
    if (named.tensor.device == device_) return;
    throw Error(ErrorCode::kInvalidArgument, "'" + named.name + "' is borrowed " + Describe(named.tensor.device) +
                                                 ": expected all tensors of the version " + Describe(device_));
  }

  // Kernels read whole elements.
  void ExpectAligned(const NamedTensor& named) const {
    const auto size = std::max<std::uintptr_t>(static_cast<std::uintptr_t>(BitsPerElement(named.tensor.dtype)) / 8, 1);
    if (!OnDevice() || reinterpret_cast<std::uintptr_t>(named.tensor.data) % size == 0) return;
    throw Error(ErrorCode::kInvalidArgument, "'" + named.name + "' is borrowed " + Describe(device_) +
                                                 ": expected an address that is a multiple of " + std::to_string(size) +
                                                 " bytes, as its elements need");
  }

  // Only its own device reaches the memory of a pool, and a version's copy is on one.
  void ExpectCopyable(const NamedTensor& named) const {
    const Device& device = named.tensor.device;
    if (!OnDevice() || device.kind == Device::Kind::kHost || device == device_) return;
    throw Error(ErrorCode::kUnsupported, "'" + named.name + "' is " + Describe(device) +
                                             ": expected all tensors of the version " + Describe(device_) +
                                             ", or a channel that takes them from host memory (shm, ucx, zmq)");
  }

  void Copy(NamedTensor& named) {
    TensorView& tensor = named.tensor;
    const auto bytes = static_cast<std::size_t>(tensor.num_bytes());
    Buffer copy;
    if (OnDevice()) {
      copy = places_.device.CopyTo(device_, tensor);
    } else {
      copy = BufferFor("a copy of '" + named.name + "'", places_.host, std::max<std::size_t>(bytes, 1));
      if (tensor.device.kind == Device::Kind::kHost) {
        StreamCopy(tensor.data, bytes, copy.data(), places_.pool);
      } else {
        places_.device.ToHost(tensor.device, tensor.data, bytes, copy.data());
      }
    }
    tensor.data = copy.data();
    tensor.device = device_;
    named.owner.reset();  // frees what was gathered for this step of the walk
    snapshot_.copies.push_back(std::make_shared<const Buffer>(std::move(copy)));
  }

  // Puts a copy of the same bytes in place of the tensor's, if another version has one.
  void ShareLast(TensorView& tensor) {
    if (places_.kept == nullptr) return;
    std::shared_ptr<const Buffer>& copy = snapshot_.copies.back();
    copy = places_.kept->Keep(std::move(copy), summaries_.back().digest);
    tensor.data = copy->data();
  }

  const bool borrowed_;
  const SnapshotPlaces places_;
  Device device_;
  Snapshot snapshot_;
  std::vector<NamedTensor> named_;
  std::vector<TensorSummary> summaries_;  // those of tensors on a device are made together, at the end
};

}  // namespace

Snapshot TakeSnapshot(const PublishOptions& options, const Weights& weights,
                      std::shared_ptr<const ManifestLayout> known, const SnapshotPlaces& places) {
  CheckOnePartEach(weights);
  Growing version(weights.borrowed, places);
  DeclaredWeights declared(weights);
  const std::unique_ptr<WeightsIterator> walk = weights.walk({});
  if (walk == nullptr) throw Error(ErrorCode::kInvalidArgument, "the weights' walk gave no iterator");
  while (std::optional<NamedTensor> named = walk->Next()) {
    declared.Check(*named);
    version.Add(*std::move(named));
  }
  declared.CheckEnd();
  if (version.empty() && options.part.ranks == 1) {
    throw Error(ErrorCode::kInvalidArgument, "a version without a single tensor");
  }
  return version.Finish(options, std::move(known));
}

}  // namespace layercast
