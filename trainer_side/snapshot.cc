#include "trainer_side/snapshot.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "layercast/error.h"
#include "src/base/rounding.h"
#include "src/tensor/manifest_entry.h"

namespace layercast {
namespace {

constexpr std::size_t kCopyPiece = 1U << 20;

void ParallelCopy(std::byte* to, const std::byte* from, std::size_t bytes, WorkerPool& pool) {
  pool.For(CeilDivide(bytes, kCopyPiece), [&](std::size_t i) {
    const std::size_t begin = i * kCopyPiece;
    std::memcpy(to + begin, from + begin, std::min(kCopyPiece, bytes - begin));
  });
}

std::string Describe(const Device& device) {
  if (device.kind == Device::Kind::kHost) return "in host memory";
  return "on CUDA device " + std::to_string(device.index);
}

// Holds a walk against the specs that were declared for it.
class Declared {
 public:
  explicit Declared(const std::vector<TensorSpec>& specs) : specs_(specs) {}

  void Check(const NamedTensor& named) {
    if (specs_.empty()) return;
    const TensorSpec& declared = Take(named.name);
    if (declared.dtype != named.tensor.dtype || declared.shape != named.tensor.shape) {
      throw Error(ErrorCode::kInvalidArgument, "'" + named.name + "': declared " + Describe(declared) + ", yielded " +
                                                   Describe(named.tensor.dtype, named.tensor.shape));
    }
  }

  void CheckEnd() {
    if (in_order_ == specs_.size()) return;
    AwaitRest();
    if (awaited_.empty()) return;
    throw Error(ErrorCode::kInvalidArgument, "the walk ended without '" + std::string(awaited_.begin()->first) +
                                                 "' and " + std::to_string(awaited_.size() - 1) +
                                                 " more declared tensors");
  }

 private:
  // Walks mostly yield in the order that they declare: names are looked up from where one does not.
  const TensorSpec& Take(const std::string& name) {
    if (!looks_up_ && in_order_ < specs_.size() && specs_[in_order_].name == name) return specs_[in_order_++];
    AwaitRest();
    const auto spec = awaited_.find(name);
    if (spec == awaited_.end()) {
      throw Error(ErrorCode::kInvalidArgument, "'" + name + "' was yielded, but not declared or twice");
    }
    return *awaited_.extract(spec).mapped();
  }

  void AwaitRest() {
    if (looks_up_) return;
    looks_up_ = true;
    for (const TensorSpec& spec : std::span(specs_).subspan(in_order_)) awaited_.emplace(spec.name, &spec);
  }

  const std::vector<TensorSpec>& specs_;
  std::size_t in_order_ = 0;  // have come
  bool looks_up_ = false;
  std::unordered_map<std::string_view, const TensorSpec*> awaited_;  // once it looks up
};

// The version as it grows.
class Growing {
 public:
  Growing(bool borrowed, const SnapshotPlaces& places) : borrowed_(borrowed), places_(places) {}

  void Add(NamedTensor named) {
    CheckHasBytes(named.name, named.tensor);
    if (named_.empty()) device_ = PlaceOf(named);
    if (borrowed_) {
      ExpectHere(named);
      snapshot_.owners.push_back(named.owner);
    } else {
      Copy(named);
    }
    // What is described is the copy: the source may not stand still.
    snapshot_.tensors.push_back({named.tensor.data, static_cast<std::uint64_t>(named.tensor.num_bytes())});
    if (!OnDevice()) entries_.push_back(EntryOf(named.name, named.tensor, places_.pool));
    named_.push_back(std::move(named));
  }

  Snapshot Finish(const PublishOptions& options, std::shared_ptr<const ManifestLayout> known) {
    if (OnDevice()) entries_ = places_.device.EntriesOf(device_, named_);
    for (std::size_t i = 0; i < named_.size(); ++i) entries_[i].part = std::move(named_[i].part);
    snapshot_.device = device_;
    snapshot_.manifest = Manifest(options.lineage, options.step, std::move(entries_), options.part, std::move(known));
    return std::move(snapshot_);
  }

  bool empty() const { return named_.empty(); }

 private:
  bool OnDevice() const { return device_.kind != Device::Kind::kHost; }

  Device PlaceOf(const NamedTensor& named) const {
    if (places_.keeps_on_device || named.tensor.device.kind == Device::Kind::kHost) return named.tensor.device;
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

  void Copy(NamedTensor& named) {
    TensorView& tensor = named.tensor;
    const auto bytes = static_cast<std::size_t>(tensor.num_bytes());
    Buffer copy;
    if (OnDevice()) {
      copy = places_.device.CopyTo(device_, tensor);
    } else {
      copy = Buffer(places_.host, std::max<std::size_t>(bytes, 1));
      if (tensor.device.kind == Device::Kind::kHost) {
        ParallelCopy(copy.data(), tensor.data, bytes, places_.pool);
      } else {
        places_.device.ToHost(tensor.device, tensor.data, bytes, copy.data());
      }
    }
    tensor.data = copy.data();
    tensor.device = device_;
    named.owner.reset();  // what was gathered for this step of the walk may go
    snapshot_.copies.push_back(std::move(copy));
  }

  const bool borrowed_;
  const SnapshotPlaces places_;
  Device device_;
  Snapshot snapshot_;
  std::vector<NamedTensor> named_;
  std::vector<ManifestEntry> entries_;  // those on a device are made together, in the end
};

}  // namespace

Snapshot TakeSnapshot(const PublishOptions& options, const Weights& weights,
                      std::shared_ptr<const ManifestLayout> known, const SnapshotPlaces& places) {
  Growing version(weights.borrowed, places);
  Declared declared(weights.specs);
  const std::unique_ptr<WeightsIterator> walk = weights.walk({});
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
