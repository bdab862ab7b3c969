#include "src/session/fetch/fetch.h"

#include <algorithm>
#include <utility>

#include "layercast/error.h"
#include "layercast/memory.h"
#include "src/base/log.h"
#include "src/base/stop_check.h"
#include "src/session/chunks/chunk_memory.h"
#include "src/session/deltas/delta_ask.h"
#include "src/session/deltas/source_copy.h"
#include "src/session/fetch/chunk_fetch.h"
#include "src/session/fetch/publisher_session.h"
#include "src/session/fetch/shared_schedule.h"
#include "src/session/fetch/snapshot_fetch.h"
#include "src/session/fetch/stream_fetch.h"
#include "src/session/fetch/version_parts.h"
#include "src/session/link/naming_peer.h"
#include "src/session/relay/relay.h"

namespace layercast {
namespace {

constexpr std::size_t kFewestSlots = 4;  // of each publisher, which keep its connection busy

void AddNew(std::string& words, const std::string& word) {
  if (words.find(word) == std::string::npos) words += ", " + word;
}

// A session with each publisher of one version, and the fetch from all of them.
class VersionFetch final : public FetchSession {
 public:
  VersionFetch(ReceiverIdentity self, const FetchOptions& options, FailPoints& failpoints)
      : self_(std::move(self)), options_(options), failpoints_(failpoints), into_(options.into) {}
  ~VersionFetch() override { Close(); }

  // If no version is named, the first publisher's newest is asked of the others too.
  void Open(std::span<const std::string> endpoints, std::string lineage, std::optional<std::uint64_t> step,
            Deadline deadline) {
    if (endpoints.empty()) throw Error(ErrorCode::kInvalidArgument, "expected the endpoint of a publisher, got none");
    for (const std::string& endpoint : endpoints) {
      KeepAlive();
      const PublisherSession& publisher = OpenOne({options_.role, endpoint}, lineage, step, deadline);
      ExpectSameMode(publisher);
      lineage = publisher.manifest().version().lineage;
      step = publisher.manifest().version().step;
    }
    SortByRank();
    RememberLayouts();
    stats_.run = publishers_.front()->run();
    stats_.channel = Together();
  }

  const std::vector<Manifest>& manifests() const override { return manifests_; }
  std::vector<std::string> endpoints() const override {
    std::vector<std::string> endpoints;
    for (const auto& publisher : publishers_) endpoints.push_back(publisher->endpoint());
    return endpoints;
  }
  std::vector<std::string> configs() const override {
    std::vector<std::string> configs;
    for (const auto& publisher : publishers_) configs.push_back(publisher->config());
    return configs;
  }
  PublishMode mode() const override { return publishers_.front()->mode(); }
  FetchStats stats() const override {
    FetchStats stats = stats_;
    for (const auto& publisher : publishers_) stats.publishers.push_back(publisher->share());
    if (stats.delta) stats.delta->took_ms += (stats.receive_seconds + stats.verify_seconds) * 1e3;
    return stats;
  }

  void AwaitCosts() noexcept override {
    for (const auto& publisher : publishers_) publisher->AwaitServingCost();
  }

  void TakeInto(const FetchMemory& into) override { into_ = into; }
  void Fetch(const Schedule& schedule, std::span<const AmaxRequest> amax_requests, FetchSink& sink,
             Deadline deadline) override {
    for (const auto& publisher : publishers_) publisher->SetAtRest(false);
    host_chunks_.emplace(into_.memory != nullptr ? *into_.memory : host_memory_, into_.pool);
    const SharedSchedule shared(schedule, Numbers());
    const auto requests = RequestsOf(amax_requests, shared);
    const std::vector<Relay::Served> served = ServeOn(shared);
    const std::vector<std::shared_ptr<KeptChunks>> kept = KeepSource(shared);
    const auto chunks = ChunksOfEach(shared, served, kept, deadline);
    try {
      const std::vector<std::optional<OfferedDelta>> deltas = AskDeltas(shared, kept, deadline);
      std::vector<wire::Subscribed> subscribed = Subscribe(shared, requests, served, deltas, deadline);
      if (mode() == PublishMode::kSnapshot) {
        SnapshotFetch(chunks, std::move(subscribed), shared, amax_requests, deltas, sink).Run();
      } else {
        StreamFetch(chunks, shared, sink).Run();
      }
    } catch (...) {
      // Closed before the slots of chunks are freed: nothing may be written to them any more.
      for (const auto& publisher : publishers_) publisher->CloseChannel();
      if (options_.relay != nullptr) options_.relay->Clear({ErrorCode::kUnavailable, "this relay's own reload failed"});
      throw;
    }
    if (kept.front() != nullptr) source_ = CopyOf(kept);
    for (const auto& publisher : publishers_) {
      publisher->SetAtRest(true);
      publisher->AskServingCost();
    }
  }
  std::shared_ptr<const SourceCopy> source() const override { return source_; }

  void Close() noexcept override {
    for (const auto& publisher : publishers_) publisher->Close();
  }

 private:
  PublisherSession& OpenOne(const PeerName& peer, const std::string& lineage, std::optional<std::uint64_t> step,
                            Deadline deadline) {
    try {
      NamingPeer(peer, [&] {
        publishers_.push_back(std::make_unique<PublisherSession>(peer, self_, options_, failpoints_));
        publishers_.back()->Open(lineage, step, deadline);
      });
      return *publishers_.back();
    } catch (const Error&) {  // if a stop has ended the wait, this error is not the reason
      ThrowIfStopped(options_.stop, peer.text() + ", opening a session");
      throw;
    }
  }

  // Keeps the leases of the publishers that are open: to open the next one, and to measure its channels, takes seconds.
  void KeepAlive() {
    for (const auto& publisher : publishers_) publisher->link().TakeIn(0, "opening sessions with all publishers");
  }

  void ExpectSameMode(const PublisherSession& publisher) const {
    const PublisherSession& first = *publishers_.front();
    if (publisher.mode() == first.mode()) return;
    const auto how = [](const PublisherSession& one) {
      return one.peer().text() + (one.mode() == PublishMode::kStream ? " streams " : " has a snapshot of ") +
             one.manifest().version().ToString();
    };
    throw Error(ErrorCode::kUnsupported,
                how(first) + ", and " + how(publisher) + ": expected a stream or a snapshot of all publishers");
  }

  void SortByRank() {
    std::vector<PublishedPart> parts;
    for (const auto& publisher : publishers_)
      parts.push_back({publisher->endpoint(), publisher->manifest(), publisher->run()});
    std::vector<std::unique_ptr<PublisherSession>> sorted;
    for (const std::size_t place : ByRank(parts)) sorted.push_back(std::move(publishers_[place]));
    publishers_ = std::move(sorted);
    for (const auto& publisher : publishers_) manifests_.push_back(publisher->manifest());
  }

  void RememberLayouts() {
    if (options_.layouts == nullptr) return;
    options_.layouts->clear();
    for (const auto& publisher : publishers_) {
      options_.layouts->emplace(publisher->endpoint(), publisher->manifest().layout());
    }
  }

  // The channels of all publishers as one. Its rate is the slowest's, so that what is slower than that counts as slow.
  ChannelUse Together() const {
    ChannelUse together = publishers_.front()->channel_use();
    for (const auto& publisher : publishers_) {
      const ChannelUse& use = publisher->channel_use();
      AddNew(together.name, use.name);
      AddNew(together.lane, use.lane);
      AddNew(together.reason, use.reason);
      together.probed_gb_per_s = std::min(together.probed_gb_per_s, use.probed_gb_per_s);
    }
    return together;
  }

  TensorNumbers Numbers() const {
    std::vector<std::size_t> counts;
    for (const Manifest& manifest : manifests_) counts.push_back(manifest.size());
    return TensorNumbers(counts);
  }

  // The requests by publisher, with each publisher's own numbers of tensors and chunks.
  static std::vector<std::vector<AmaxRequest>> RequestsOf(std::span<const AmaxRequest> requests,
                                                          const SharedSchedule& schedule) {
    const TensorNumbers& numbers = schedule.numbers();
    std::vector<std::vector<AmaxRequest>> shared(numbers.publishers());
    for (AmaxRequest request : requests) {
      const std::uint32_t publisher = numbers.PublisherOf(request.tensor);
      request.tensor -= numbers.FirstOf(publisher);
      request.before_chunk = schedule.FirstFrom(publisher, request.before_chunk);
      shared[publisher].push_back(request);
    }
    return shared;
  }

  // Begins to relay each publisher's chunks. Of a stream, nothing is relayed.
  std::vector<Relay::Served> ServeOn(const SharedSchedule& shared) {
    std::vector<Relay::Served> served(publishers_.size());
    if (options_.relay == nullptr || into_.source != nullptr) return served;
    options_.relay->Clear({ErrorCode::kNotFound, "this relay takes another version now"});
    if (mode() == PublishMode::kStream) return served;
    try {
      for (std::size_t i = 0; i < served.size(); ++i) served[i] = options_.relay->Serve(shared.Of(i));
    } catch (const Error& error) {  // only receivers that would take from this one lose, and they have other sources
      log::warn("nothing of {} is relayed: {}", manifests_.front().version().ToString(), error.what());
      options_.relay->Clear(error);  // of the parts that it had begun to serve
      return std::vector<Relay::Served>(publishers_.size());
    }
    return served;
  }

  // Where each publisher's chunks are kept; null: they are not.
  std::vector<std::shared_ptr<KeptChunks>> KeepSource(const SharedSchedule& shared) {
    std::vector<std::shared_ptr<KeptChunks>> kept(publishers_.size());
    stats_.delta.reset();
    if (into_.source == nullptr) return kept;
    stats_.delta.emplace().why = "a stream comes dense";
    if (mode() == PublishMode::kStream) return kept;
    try {
      for (std::size_t i = 0; i < kept.size(); ++i) {
        kept[i] = std::make_shared<KeptChunks>(shared.Of(i), *into_.source, "the source bytes that this rank keeps");
      }
    } catch (const Error& error) {  // the version comes all the same
      log::warn("{} is not kept, and the next version comes dense: {}", manifests_.front().version().ToString(),
                error.what());
      stats_.delta->why = error.what();
      return std::vector<std::shared_ptr<KeptChunks>>(publishers_.size());
    }
    return kept;
  }

  std::shared_ptr<const SourceCopy> CopyOf(const std::vector<std::shared_ptr<KeptChunks>>& kept) const {
    auto copy = std::make_shared<SourceCopy>();
    for (std::size_t i = 0; i < kept.size(); ++i) copy->parts.push_back({manifests_[i].version(), kept[i]});
    return copy;
  }

  // All publishers are asked before any answer is waited for. Empty where chunks come dense.
  std::vector<std::optional<OfferedDelta>> AskDeltas(const SharedSchedule& shared,
                                                     const std::vector<std::shared_ptr<KeptChunks>>& kept,
                                                     Deadline deadline) {
    if (kept.front() == nullptr) return std::vector<std::optional<OfferedDelta>>(publishers_.size());
    const auto begin = Deadline::Clock::now();
    const std::string stage = "asking for what changed in " + manifests_.front().version().ToString();
    DeltaAsk ask(options_.base.get(), publishers_.size());
    std::vector<std::size_t> asked;
    for (std::size_t i = 0; i < publishers_.size(); ++i) {
      const ChannelUse& channel = publishers_[i]->channel_use();
      const DeltaTerms terms{.use = options_.delta,
                             .dense_bytes = shared.Of(i).total_bytes(),
                             .channel = channel.name,
                             .gb_per_s = channel.probed_gb_per_s,
                             .attaches = publishers_[i]->channel().attaches()};
      if (ask.Ask(i, terms, shared.Of(i), publishers_[i]->link())) asked.push_back(i);
    }
    for (const std::size_t i : asked) {
      ask.Take(i, shared.Of(i), publishers_[i]->link(), Expect(i, shared, deadline, stage));
    }
    stats_.delta = ask.choice();
    stats_.delta->took_ms = std::chrono::duration<double, std::milli>(Deadline::Clock::now() - begin).count();
    return ask.deltas();
  }

  // One for each publisher. They refer to `shared`.
  std::vector<std::unique_ptr<ChunkFetch>> ChunksOfEach(const SharedSchedule& shared,
                                                        const std::vector<Relay::Served>& served,
                                                        const std::vector<std::shared_ptr<KeptChunks>>& kept,
                                                        Deadline deadline) {
    const std::size_t slots_each =
        std::max(options_.slots / publishers_.size(), std::min(options_.slots, kFewestSlots));
    std::vector<std::unique_ptr<ChunkFetch>> chunks;
    for (std::size_t i = 0; i < publishers_.size(); ++i) {
      KeptChunks* const stays = served[i].chunks != nullptr ? served[i].chunks : kept[i].get();
      const ChunkWindow::Memory memory{.slots = slots_each,
                                       .places = {*host_chunks_, options_.expects_signed() ? nullptr : into_.device},
                                       .kept = stays,
                                       .copies_out = stays != nullptr || options_.expects_signed(),
                                       .pool = into_.pool};
      chunks.push_back(std::make_unique<ChunkFetch>(*publishers_[i], shared.Of(i), memory, stats_, deadline));
    }
    return chunks;
  }

  // All publishers are asked before any answer is waited for, because each has to read bytes for its first digests.
  std::vector<wire::Subscribed> Subscribe(const SharedSchedule& shared,
                                          const std::vector<std::vector<AmaxRequest>>& requests,
                                          const std::vector<Relay::Served>& served,
                                          const std::vector<std::optional<OfferedDelta>>& deltas, Deadline deadline) {
    const std::string stage = "subscribing to " + manifests_.front().version().ToString();
    std::vector<wire::Subscribed> answers(publishers_.size());
    std::vector<std::size_t> awaited;
    for (std::size_t i = 0; i < publishers_.size(); ++i) {
      publishers_[i]->Ask(shared.Of(i), requests[i], mode() == PublishMode::kSnapshot && !deltas[i], served[i].place);
    }
    for (std::size_t i = 0; i < publishers_.size(); ++i) {
      wire::Message answer = Expect(i, shared, deadline, stage);
      if (std::holds_alternative<wire::NeedSchedule>(answer)) {
        publishers_[i]->AskAgain(shared.Of(i));
        awaited.push_back(i);
      } else {
        answers[i] = Subscribed(i, std::move(answer), stage);
      }
    }
    for (const std::size_t i : awaited) answers[i] = Subscribed(i, Expect(i, shared, deadline, stage), stage);
    for (std::size_t i = 0; i < answers.size(); ++i) publishers_[i]->CheckAnswer(answers[i], shared.Of(i));
    return answers;
  }

  wire::Subscribed Subscribed(std::size_t publisher, wire::Message answer, const std::string& stage) const {
    if (auto* subscribed = std::get_if<wire::Subscribed>(&answer)) return std::move(*subscribed);
    publishers_[publisher]->link().RefuseAnswer(stage, "'subscribed'", answer);
  }

  // How many messages a publisher may have sent while others are waited for: its answer to `subscribe`, and of a
  // stream every tensor, and the end; of a snapshot digests, and where to take chunks from whenever that changes.
  std::size_t MostOfSession(std::size_t publisher, const Schedule& schedule) const {
    constexpr std::size_t kMostChanges = 64;
    const std::size_t with_signatures = options_.expects_signed() ? 2 : 1;
    if (mode() == PublishMode::kStream) return 1 + with_signatures * manifests_[publisher].size() + 1;
    return with_signatures * (1 + schedule.chunks().size()) + kMostChanges;
  }

  // The next message of one publisher. Meanwhile the sessions with the others are kept alive.
  wire::Message Expect(std::size_t publisher, const SharedSchedule& shared, Deadline deadline,
                       const std::string& stage) {
    PublisherLink& link = publishers_[publisher]->link();
    while (!deadline.Passed()) {
      if (std::optional<wire::Message> message = link.Receive(deadline.AtMost(ChunkFetch::kPollStep), stage)) {
        const auto* from = std::get_if<wire::FetchFrom>(&*message);
        if (from == nullptr || !publishers_[publisher]->takes_relays()) return *std::move(message);
        publishers_[publisher]->Note(*from);
        continue;
      }
      for (std::size_t i = 0; i < publishers_.size(); ++i) {
        publishers_[i]->link().TakeIn(MostOfSession(i, shared.Of(i)), stage);
      }
    }
    return link.Expect(deadline, stage);
  }

  const ReceiverIdentity self_;
  const FetchOptions options_;
  FailPoints& failpoints_;
  FetchMemory into_;
  HostMemory host_memory_;
  std::optional<HostChunkMemory> host_chunks_;                 // of the fetch
  std::vector<std::unique_ptr<PublisherSession>> publishers_;  // by rank
  std::vector<Manifest> manifests_;                            // by rank
  std::shared_ptr<const SourceCopy> source_;
  FetchStats stats_;  // without `publishers`, which their sessions have
};

}  // namespace

std::unique_ptr<FetchSession> FetchSession::Open(std::span<const std::string> endpoints, const ReceiverIdentity& self,
                                                 const std::string& lineage, std::optional<std::uint64_t> step,
                                                 const FetchOptions& options, FailPoints& failpoints,
                                                 Deadline deadline) {
  auto session = std::make_unique<VersionFetch>(self, options, failpoints);
  session->Open(endpoints, lineage, step, deadline);
  return session;
}

}  // namespace layercast
