// A version of a durable store, read where its objects lie: no publisher has to live. This rank maps what its schedule
// wants, and checks each leaf before it is used.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine_side/reload/pipeline/stage_clock.h"
#include "engine_side/reload/sources/version_source.h"
#include "layercast/error.h"
#include "src/base/stop_check.h"
#include "src/store/lease.h"
#include "src/store/stored_object.h"
#include "src/store/version_store.h"
#include "src/tensor/kernels/axis_amax.h"
#include "src/tensor/parts/merged_version.h"

namespace layercast {
namespace {

// The objects of a version's tensors, each mapped from its first use to its last. Resource; one thread only.
class OpenObjects {
 public:
  OpenObjects(const StoreFolder& folder, const VersionRecord& record, const Wanted& wanted) : folder_(folder) {
    for (const Manifest& manifest : record.held()) {
      for (std::uint32_t tensor = 0; tensor < manifest.size(); ++tensor) held_.push_back({&manifest, tensor});
    }
    const std::vector<Chunk>& chunks = wanted.schedule.chunks();
    for (std::uint32_t chunk = 0; chunk < chunks.size(); ++chunk) {
      for (const Region& region : wanted.schedule.RegionsOf(chunks[chunk])) last_use_[region.tensor] = chunk;
    }
  }

  StoredObject& Of(std::uint32_t tensor) {
    std::unique_ptr<StoredObject>& object = open_[tensor];
    if (object == nullptr) {
      const auto [manifest, index] = held_.at(tensor);
      const Digest& digest = manifest->entry(index).digest;
      object = std::make_unique<StoredObject>(folder_.Object(digest), digest, BytesOf(*manifest, index));
    }
    return *object;
  }
  const TensorSpec& SpecOf(std::uint32_t tensor) const {
    const auto [manifest, index] = held_.at(tensor);
    return manifest->entry(index).spec;
  }

  // Lets go of what no later chunk wants.
  void Used(std::uint32_t chunk) {
    std::erase_if(open_, [&](const auto& one) {
      const auto last = last_use_.find(one.first);
      return last == last_use_.end() || last->second <= chunk;
    });
  }

 private:
  const StoreFolder& folder_;
  std::vector<std::pair<const Manifest*, std::uint32_t>> held_;  // tensors, and parts of them, as schedules number them
  std::map<std::uint32_t, std::uint32_t> last_use_;              // by tensor: the last chunk that has some of it
  std::map<std::uint32_t, std::unique_ptr<StoredObject>> open_;
};

class StoreSource final : public VersionSource {
 public:
  StoreSource(std::string directory, std::string lineage, std::optional<std::uint64_t> step, Digest digest)
      : directory_(std::move(directory)), lineage_(std::move(lineage)), step_(step), digest_(digest) {}

  bool is_published() const override { return true; }
  bool is_vouched_for() const override { return false; }  // whoever can write the folder

  Opened Open(const SourceContext& context) override {
    context.report.channel = "store";
    store_.emplace(StoreFolder::Open(directory_));
    StoredVersion stored = store_->Find(lineage_, step_, digest_);
    name_ = stored.name;
    TakeUp();
    record_ = std::move(stored.record);
    const Version& version = record_.manifest.version();
    context.report.version = version;
    const std::string from = store_->folder().ToString();
    HeldParts parts;
    if (!record_.parts.empty()) parts = Merge(record_.parts, std::vector(record_.parts.size(), from)).parts;
    return {.manifest = record_.manifest,
            .parts = std::move(parts),
            .from = from,
            .configs = {{from, record_.config}},
            .in_order = true,
            .snapshot = true,
            .version = version};
  }

  void Receive(const SourceContext& context, const Wanted& wanted) override {
    OpenObjects objects(store_->folder(), record_, wanted);
    const std::vector<AmaxRequest> requests = wanted.prepared.SessionRequests();
    for (std::uint32_t chunk = 0; chunk < wanted.schedule.chunks().size(); ++chunk) {
      ThrowIfStopped(context.stop, "reading " + store_->folder().ToString());
      AnswerAmax(context, wanted, requests, chunk, objects);
      wanted.sink.OnChunk(chunk, ViewsOf(context, wanted, chunk, objects));
      objects.Used(chunk);
      lease_->Renew();
    }
    lease_.reset();
  }

  void LetGo(const SourceContext& /*context*/) override { lease_.reset(); }
  void Reach(const SourceContext& /*context*/) override { TakeUp(); }

 private:
  // The version may have gone since it was found. From the lease on it stays.
  void TakeUp() {
    lease_ = std::make_unique<Lease>(store_->folder(), name_);
    static_cast<void>(store_->Find(name_));
  }

  static void AnswerAmax(const SourceContext& context, const Wanted& wanted, std::span<const AmaxRequest> requests,
                         std::uint32_t chunk, OpenObjects& objects) {
    for (const AmaxRequest& request : requests) {
      if (request.before_chunk != chunk) continue;
      StoredObject& object = objects.Of(request.tensor);
      object.CheckAll(context.pool);
      const TensorSpec read = AsRead(objects.SpecOf(request.tensor), request);
      wanted.sink.OnAxisAmax(request.tensor, AmaxOver(read, object.bytes().data(), request.kept, context.pool));
    }
  }

  std::vector<RegionView> ViewsOf(const SourceContext& context, const Wanted& wanted, std::uint32_t chunk,
                                  OpenObjects& objects) const {
    const StageClock::Scope timing(
        {&context.report.stage_ms["receive"], LaneOf(context.options.trace, "receive", TraceKind::kStage)});
    std::vector<RegionView> views;
    for (const Region& region : wanted.schedule.RegionsOf(wanted.schedule.chunks()[chunk])) {
      StoredObject& object = objects.Of(region.tensor);
      // The bytes between rows are of the same leaves, mostly.
      object.Check(region.offset, (region.rows - 1) * region.stride + region.row_bytes, context.pool);
      views.push_back(ViewAt(object.bytes().data(), object.bytes().size(), region));
    }
    return views;
  }

  const std::string directory_;
  const std::string lineage_;
  const std::optional<std::uint64_t> step_;
  const Digest digest_;
  std::optional<VersionStore> store_;  // once opened
  StoredName name_;
  VersionRecord record_;
  std::unique_ptr<Lease> lease_;
};

}  // namespace

ReloadSource FromStore(std::string directory, std::string lineage, std::optional<std::uint64_t> step, Digest digest) {
  return ReloadSource(std::make_unique<StoreSource>(std::move(directory), std::move(lineage), step, digest));
}

}  // namespace layercast
