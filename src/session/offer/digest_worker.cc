#include "src/session/offer/digest_worker.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <utility>

#include "layercast/error.h"
#include "src/base/as_error.h"
#include "src/base/threads/thread_name.h"
#include "src/base/threads/work_clock.h"
#include "src/session/chunks/chunk_digests.h"
#include "src/session/offer/ask_limits.h"
#include "src/session/signing/chunk_hashes.h"
#include "src/transport/channel/offer_views.h"

namespace layercast {
namespace {

constexpr std::chrono::milliseconds kIdle{1000};
constexpr std::uint64_t kBytesAtOnce = 32U << 20;  // digested between two messages: some milliseconds
constexpr std::size_t kMostMessages = 256;         // for one schedule; the socket holds a thousand

// Appends the digests of the next few chunks to `digests`, which has those of the first.
void AddDigests(const Schedule& schedule, const Offer& offer, WorkerPool& pool, DeviceBytes* device,
                std::vector<Digest>& digests) {
  const std::span<const Chunk> chunks = schedule.chunks();
  const std::size_t first = digests.size();
  std::size_t end = first;
  for (std::uint64_t bytes = 0; end < chunks.size(); ++end) {
    if (bytes >= kBytesAtOnce && end - first >= chunks.size() / kMostMessages) break;
    bytes += chunks[end].num_bytes;
  }
  if (offer.device.kind != Device::Kind::kHost) {
    std::vector<std::vector<RegionView>> views;
    for (std::size_t i = first; i < end; ++i) views.push_back(ViewsOf(offer.tensors, schedule.RegionsOf(chunks[i])));
    std::ranges::copy(device->DigestsOf(offer.device, views), std::back_inserter(digests));
    return;
  }
  digests.resize(end);
  DigestChunks(schedule, offer.tensors, first, std::span(digests).subspan(first), pool);
}

}  // namespace

std::size_t EndOfMessage(std::span<const AmaxRequest> left, std::size_t sent, std::size_t known,
                         const Manifest& manifest, std::uint64_t most_bytes) {
  std::uint64_t bytes = 0;
  for (const AmaxRequest& request : left) {
    if (request.before_chunk >= known) break;
    bytes += AmaxBytes(request, manifest);
    if (bytes > most_bytes && request.before_chunk > sent) return request.before_chunk;
  }
  return known;
}

DigestWorker::DigestWorker(ServeContext context) : context_(std::move(context)) {
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
  WorkClock clock;
  while (!stop.stop_requested()) {
    TakeJobs(Deadline::After(under_way_.empty() ? kIdle : std::chrono::milliseconds(0)));
    for (auto work = under_way_.begin(); work != under_way_.end() && !stop.stop_requested();) {
      work = Step(*work) ? under_way_.erase(work) : std::next(work);
      core_seconds_ += clock.Lap().core_seconds;
    }
  }
}

void DigestWorker::TakeJobs(Deadline deadline) {
  while (std::optional<DigestJob> job = jobs_.Pop(deadline)) {
    if (const auto hold = job->hold.lock()) {
      context_.asked.Note(hold->version()->manifest().layout_digest(), job->schedule_digest, job->schedule);
    }
    std::ranges::stable_sort(job->amax_requests, {}, &AmaxRequest::before_chunk);
    under_way_.push_back({.job = *std::move(job)});
    deadline = Deadline::After(std::chrono::milliseconds(0));
  }
}

bool DigestWorker::Step(Work& work) {
  // The version is held for one step only, so a wait for the version's release is delayed by no more than that.
  const std::shared_ptr<const VersionHold> hold = work.job.hold.lock();
  if (hold == nullptr) return true;
  try {
    SendNext(work, hold->version());
    return work.sent == work.job.schedule->chunks().size();
  } catch (const std::exception& thrown) {
    const Error error = AsError(thrown);
    context_.outbox.Put(work.job.key, wire::Refused{error.code(), error.what()});
    return true;
  }
}

void DigestWorker::SendNext(Work& work, const VersionPointer& version) {
  const std::size_t first = work.sent;
  const auto begin = TraceTime::clock::now();
  std::vector<Digest> digests = NextDigests(work, version);
  std::vector<wire::AxisAmax> amaxes = NextAmaxes(work, version);
  Note(work, first, begin);
  if (work.subscribed) return Announce(work, version, first, wire::MoreDigests{std::move(digests), std::move(amaxes)});
  work.subscribed = true;
  Announce(work, version, first, wire::Subscribed{OfferFor(work.job, *version), std::move(digests), std::move(amaxes)});
}

void DigestWorker::Note(const Work& work, std::size_t first, TraceTime begin) {
  if (work.job.record == nullptr) return;
  work.job.record->Add("digests", begin, TraceTime::clock::now(),
                       std::to_string(work.sent - first) + " chunks from " + std::to_string(first) + " on");
}

void DigestWorker::Announce(const Work& work, const VersionPointer& version, std::size_t first, wire::Message message) {
  if (!work.job.signed_text) return context_.outbox.Put(work.job.key, std::move(message));
  wire::SignedDigests follows = work.job.signed_text->Sign(*context_.signing, static_cast<std::uint32_t>(first),
                                                           HashesOf(work, version, first), message);
  context_.outbox.Put(work.job.key, std::move(message));
  context_.outbox.Put(work.job.key, std::move(follows));
}

std::vector<Hash> DigestWorker::HashesOf(const Work& work, const VersionPointer& version, std::size_t first) {
  std::vector<Hash>& known = known_.Hashes(version, work.job.schedule_digest);
  if (known.size() < work.sent) {  // also those before the first, if they were forgotten meanwhile
    const std::vector<Hash> more = HashChunks(*work.job.schedule, version->offer(), known.size(),
                                              work.sent - known.size(), context_.pool, context_.device);
    known.insert(known.end(), more.begin(), more.end());
  }
  return {known.begin() + static_cast<std::ptrdiff_t>(first), known.begin() + static_cast<std::ptrdiff_t>(work.sent)};
}

std::vector<Digest> DigestWorker::NextDigests(Work& work, const VersionPointer& version) {
  const std::size_t chunks = work.job.schedule->chunks().size();
  std::vector<Digest>& known = known_.Digests(version, work.job.schedule_digest);
  // Fewer digests may be known than were sent, because some schedules are forgotten if many are in use.
  while (known.size() < chunks && known.size() <= work.sent) {
    AddDigests(*work.job.schedule, version->offer(), context_.pool, context_.device, known);
  }
  const std::size_t end = EndOfMessage(std::span(work.job.amax_requests).subspan(work.sent_amax), work.sent,
                                       known.size(), version->manifest(), kMostAmaxBytes);
  const auto at = [&](std::size_t digest) { return known.begin() + static_cast<std::ptrdiff_t>(digest); };
  return {at(std::exchange(work.sent, end)), at(end)};
}

std::vector<wire::AxisAmax> DigestWorker::NextAmaxes(Work& work, const VersionPointer& version) {
  const std::vector<AmaxRequest>& requests = work.job.amax_requests;
  const bool all = work.sent == work.job.schedule->chunks().size();
  std::vector<wire::AxisAmax> next;
  for (; work.sent_amax < requests.size(); ++work.sent_amax) {
    const AmaxRequest& request = requests[work.sent_amax];
    if (!all && request.before_chunk >= work.sent) break;
    next.push_back({request.tensor, known_.Amax(version, request, context_.pool, context_.device)});
  }
  return next;
}

std::uint64_t DigestWorker::OfferFor(const DigestJob& job, const OfferedVersion& version) {
  std::uint64_t offer = version.offer().id;
  for (const Chunk& chunk : job.schedule->chunks()) {
    if (!context_.failpoints.Hit("send.chunk")) continue;
    corrupted_.emplace(version, job.schedule->RegionsOf(chunk), context_.take_offer_ids(1), context_.arena,
                       context_.ends);
    offer = corrupted_->id();
  }
  return offer;
}

}  // namespace layercast
