#include "src/session/digest_worker.h"

#include <chrono>
#include <optional>
#include <utility>

#include "layercast/error.h"
#include "src/base/thread_name.h"
#include "src/session/chunk_digests.h"

namespace layercast {
namespace {

constexpr std::size_t kMostCached = 256;
constexpr std::chrono::milliseconds kIdle{1000};

}  // namespace

DigestWorker::DigestWorker(Parts parts) : parts_(std::move(parts)) {
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

DigestWorker::~DigestWorker() {
  thread_.request_stop();
  jobs_.Close();
}

void DigestWorker::Put(DigestJob job) {
  if (jobs_.Push(std::move(job), Deadline::After(std::chrono::milliseconds(0)))) return;
  throw Error(ErrorCode::kResourceExhausted, "too many schedules wait for their digests");
}

void DigestWorker::Run(const std::stop_token& stop) {
  NameThisThread("lc-digests");
  while (!stop.stop_requested()) {
    const std::optional<DigestJob> job = jobs_.Pop(Deadline::After(kIdle));
    if (!job) continue;
    try {
      parts_.outbox.Put(job->key, Answer(*job));
    } catch (const Error& error) {
      parts_.outbox.Put(job->key, wire::Refused{error.code(), error.what()});
    }
  }
}

wire::Subscribed DigestWorker::Answer(const DigestJob& job) {
  wire::Subscribed subscribed{job.version->offer().id, DigestsOf(job), {}};
  for (const auto& [tensor, kept] : job.amax_requests) {
    const TensorSpec& spec = job.version->manifest().entry(tensor).spec;
    subscribed.amax.push_back({tensor, AmaxOver(spec, job.version->offer().tensors[tensor].data, kept, parts_.pool)});
  }
  for (const Chunk& chunk : job.schedule->chunks()) {
    if (!parts_.failpoints.Hit("send.chunk")) continue;
    corrupted_.emplace(*job.version, job.schedule->RegionsOf(chunk), parts_.take_offer_ids(1), parts_.arena,
                       parts_.ends);
    subscribed.offer_id = corrupted_->id();
  }
  return subscribed;
}

const std::vector<Digest>& DigestWorker::DigestsOf(const DigestJob& job) {
  const auto key = std::pair(job.version->offer().id, job.schedule->digest().ToHex());
  const auto cached = cache_.find(key);
  if (cached != cache_.end()) return cached->second;
  if (cache_.size() >= kMostCached) cache_.erase(cache_.begin());  // of the oldest offer
  return cache_[key] = ChunkDigests(*job.schedule, job.version->offer().tensors, parts_.pool);
}

}  // namespace layercast
