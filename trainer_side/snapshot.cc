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
  explicit Declared(const std::vector<TensorSpec>& specs) {
    for (const TensorSpec& spec : specs) awaited_.emplace(spec.name, &spec);
    any_ = !specs.empty();
  }

  void Check(const NamedTensor& named) {
    if (!any_) return;
    const auto spec = awaited_.find(named.name);
    if (spec == awaited_.end()) {
      throw Error(ErrorCode::kInvalidArgument, "'" + named.name + "' was yielded, but not declared or twice");
    }
    const TensorSpec& declared = *spec->second;
    if (declared.dtype != named.tensor.dtype || declared.shape != named.tensor.shape) {
      throw Error(ErrorCode::kInvalidArgument, "'" + named.name + "': declared " + Describe(declared) + ", yielded " +
                                                   Describe(named.tensor.dtype, named.tensor.shape));
    }
    awaited_.erase(spec);
  }

  void CheckEnd() const {
    if (awaited_.empty()) return;
    throw Error(ErrorCode::kInvalidArgument, "the walk ended without '" + std::string(awaited_.begin()->first) +
                                                 "' and " + std::to_string(awaited_.size() - 1) +
                                                 " more declared tensors");
  }

 private:
  std::unordered_map<std::string_view, const TensorSpec*> awaited_;
  bool any_ = false;
};

}  // namespace

Snapshot TakeSnapshot(const PublishOptions& options, const Weights& weights, MemoryResource& memory, WorkerPool& pool) {
  Snapshot snapshot;
  std::vector<ManifestEntry> entries;
  Declared declared(weights.specs);
  const std::unique_ptr<WeightsIterator> walk = weights.walk({});
  while (std::optional<NamedTensor> named = walk->Next()) {
    declared.Check(*named);
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
  snapshot.manifest = Manifest(options.lineage, options.step, std::move(entries), options.part);
  return snapshot;
}

}  // namespace layercast
