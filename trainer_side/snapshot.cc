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

}  // namespace

Snapshot TakeSnapshot(const PublishOptions& options, const Weights& weights,
                      std::shared_ptr<const ManifestLayout> known, MemoryResource& memory, WorkerPool& pool) {
  Snapshot snapshot;
  std::vector<ManifestEntry> entries;
  Declared declared(weights.specs);
  const std::unique_ptr<WeightsIterator> walk = weights.walk({});
  while (std::optional<NamedTensor> named = walk->Next()) {
    declared.Check(*named);
    CheckReadable(named->name, named->tensor);
    const auto bytes = static_cast<std::size_t>(named->tensor.num_bytes());
    if (weights.borrowed) {
      snapshot.owners.push_back(named->owner);
    } else {
      Buffer copy(memory, std::max<std::size_t>(bytes, 1));
      ParallelCopy(copy.data(), named->tensor.data, bytes, pool);
      named->tensor.data = copy.data();  // what is described below is the copy: the source may not stand still
      snapshot.copies.push_back(std::move(copy));
    }
    entries.push_back(EntryOf(named->name, named->tensor, pool));
    entries.back().part = std::move(named->part);
    snapshot.tensors.push_back({named->tensor.data, bytes});
  }
  declared.CheckEnd();
  if (entries.empty() && options.part.ranks == 1) {
    throw Error(ErrorCode::kInvalidArgument, "a version without a single tensor");
  }
  snapshot.manifest = Manifest(options.lineage, options.step, std::move(entries), options.part, std::move(known));
  return snapshot;
}

}  // namespace layercast
