#include "src/session/fetch.h"

#include <algorithm>
#include <map>
#include <utility>

#include "layercast/error.h"
#include "src/base/check.h"
#include "src/base/digest.h"
#include "src/session/choose_channel.h"
#include "src/session/chunk_window.h"
#include "src/session/publisher_link.h"

namespace layercast {
namespace {

using Clock = Deadline::Clock;
using std::chrono::milliseconds;

// How long one look at the data channel may take before the control link is looked at again.
constexpr milliseconds kPollStep{100};

double SecondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

Digest DigestOfViews(std::span<const RegionView> views) {
  Digester digester;
  for (const RegionView& view : views) {
    if (view.stride == view.row_bytes || view.rows == 1) {
      digester.Update({view.base, view.num_bytes()});
      continue;
    }
    for (std::size_t row = 0; row < view.rows; ++row) digester.Update({view.row(row), view.row_bytes});
  }
  return digester.Finish();
}

wire::Hello MakeHello(const ReceiverIdentity& self, const std::string& lineage, std::optional<std::uint64_t> step) {
  wire::Hello hello;
  hello.engine = self.engine;
  hello.attempt = self.attempt;
  hello.rank = static_cast<std::uint32_t>(self.rank);
  hello.tp_size = static_cast<std::uint32_t>(self.tp_size);
  hello.host = MyHost();
  hello.lineage = lineage;
  hello.step_known = step.has_value();
  hello.step = step.value_or(0);
  return hello;
}

class Session final : public FetchSession {
 public:
  Session(const std::string& endpoint, const FetchOptions& options, FailPoints& failpoints)
      : options_(options), failpoints_(failpoints), link_(endpoint, options.peer_timeout) {}
  ~Session() override { Close(); }

  void Open(const wire::Hello& hello, Deadline deadline) {
    link_.Send(hello);
    auto welcome = Expect<wire::Welcome>(deadline, "opening a session");
    manifest_ = Manifest::Decode(welcome.manifest);
    mode_ = welcome.stream ? PublishMode::kStream : PublishMode::kSnapshot;
    ChosenChannel chosen = ChooseChannel(welcome, options_.transports, options_.channel, deadline);
    stats_.channel = chosen.name;
    channel_ = std::move(chosen.end);
  }

  const Manifest& manifest() const override { return manifest_; }
  PublishMode mode() const override { return mode_; }
  const std::string& channel() const override { return stats_.channel; }
  FetchStats stats() const override { return stats_; }

  FetchStats Fetch(const Schedule& schedule, std::span<const std::uint32_t> row_amax_tensors, FetchSink& sink,
                   Deadline deadline) override {
    const wire::Subscribed subscribed = Subscribe(schedule, row_amax_tensors, deadline);
    for (const wire::RowAmax& row_amax : subscribed.row_amax) sink.OnRowAmax(row_amax.tensor, row_amax.rows);
    ChunkWindow window(*channel_, options_.slots, options_.memory != nullptr ? *options_.memory : host_memory_);
    try {
      if (mode_ == PublishMode::kSnapshot) {
        FetchSnapshot(schedule, subscribed, window, sink, deadline);
      } else {
        FetchStream(schedule, window, sink, deadline);
      }
    } catch (...) {
      channel_->Close();  // before the window's slots go: nothing may be written to them any more
      throw;
    }
    return stats_;
  }

  void Close() noexcept override {
    if (closed_) return;
    closed_ = true;
    if (channel_ != nullptr) channel_->Close();
    try {
      link_.Send(wire::Bye{});
    } catch (...) {  // a publisher that is gone holds nothing for us
    }
  }

 private:
  template <typename T>
  T Expect(Deadline deadline, const std::string& stage) {
    wire::Message message = link_.Expect(deadline, stage);
    if (T* expected = std::get_if<T>(&message)) return std::move(*expected);
    throw Error(ErrorCode::kCorrupt, "publisher " + link_.endpoint() + ", " + stage + ": expected '" +
                                         std::string(wire::MessageName(T{})) + "', got '" +
                                         std::string(wire::MessageName(message)) + "'");
  }

  wire::Subscribed Subscribe(const Schedule& schedule, std::span<const std::uint32_t> row_amax_tensors,
                             Deadline deadline) {
    const std::string stage = "subscribing to " + manifest_.version().ToString();
    wire::Subscribe subscribe;
    subscribe.schedule_digest = schedule.digest();
    subscribe.row_amax_tensors.assign(row_amax_tensors.begin(), row_amax_tensors.end());
    link_.Send(subscribe);
    wire::Message answer = link_.Expect(deadline, stage);
    if (std::holds_alternative<wire::NeedSchedule>(answer)) {
      subscribe.schedule = schedule.Encode();
      link_.Send(subscribe);
      return CheckCount(Expect<wire::Subscribed>(deadline, stage), schedule);
    }
    if (auto* subscribed = std::get_if<wire::Subscribed>(&answer)) return CheckCount(std::move(*subscribed), schedule);
    throw Error(ErrorCode::kCorrupt, "publisher " + link_.endpoint() + ", " + stage + ": unexpected '" +
                                         std::string(wire::MessageName(answer)) + "'");
  }

  wire::Subscribed CheckCount(wire::Subscribed subscribed, const Schedule& schedule) const {
    const std::size_t expected = mode_ == PublishMode::kSnapshot ? schedule.chunks().size() : 0;
    if (subscribed.chunk_digests.size() != expected) {
      throw Error(ErrorCode::kCorrupt, "publisher " + link_.endpoint() + " sent " +
                                           std::to_string(subscribed.chunk_digests.size()) +
                                           " chunk digests, expected " + std::to_string(expected));
    }
    for (const wire::RowAmax& row_amax : subscribed.row_amax) CheckRows(row_amax.tensor, row_amax.rows.size());
    return subscribed;
  }

  void CheckRows(std::uint32_t tensor, std::size_t rows) const {
    const auto& entries = manifest_.entries();
    if (tensor < entries.size() && !entries[tensor].spec.shape.empty() &&
        static_cast<std::size_t>(entries[tensor].spec.shape[0]) == rows) {
      return;
    }
    throw Error(ErrorCode::kCorrupt, "publisher " + link_.endpoint() + " sent " + std::to_string(rows) +
                                         " row magnitudes for tensor " + std::to_string(tensor) +
                                         ": expected one per row of a tensor of the manifest");
  }

  // Waits for one chunk, looking at the control link in between: a dead publisher shows there, whatever the channel.
  ChunkCompletion NextChunk(ChunkWindow& window, Deadline deadline, const std::string& stage) {
    const auto begin = Clock::now();
    while (true) {
      std::optional<ChunkCompletion> completion = window.Poll(deadline.AtMost(kPollStep));
      stats_.receive_seconds += completion ? SecondsSince(begin) : 0;
      if (completion) return std::move(*completion);
      NoMessage(link_.Receive(Deadline(Clock::now()), stage));
      if (deadline.Passed()) {
        throw Error(ErrorCode::kDeadlineExceeded,
                    "publisher " + link_.endpoint() + ", " + stage + ": no chunk before the deadline");
      }
    }
  }

  void NoMessage(const std::optional<wire::Message>& message) const {
    if (!message) return;
    throw Error(ErrorCode::kCorrupt, "publisher " + link_.endpoint() + " sent '" +
                                         std::string(wire::MessageName(*message)) + "' while chunks were under way");
  }

  void FetchSnapshot(const Schedule& schedule, const wire::Subscribed& subscribed, ChunkWindow& window, FetchSink& sink,
                     Deadline deadline) {
    const std::size_t count = schedule.chunks().size();
    std::map<std::uint64_t, ChunkCompletion> early;  // completed before their turn
    std::size_t submitted = 0;
    for (std::uint32_t next = 0; next < count; ++next) {
      const std::string stage = Stage(next, count);
      while (!early.contains(next)) {
        for (; submitted < count && window.HasRoom(); ++submitted) {
          const Chunk& chunk = schedule.chunks()[submitted];
          window.Submit(static_cast<std::uint32_t>(submitted), subscribed.offer_id, schedule.RegionsOf(chunk),
                        chunk.num_bytes);
        }
        ChunkCompletion completion = NextChunk(window, deadline, stage);
        early.emplace(completion.ticket, std::move(completion));
      }
      const ChunkCompletion completion = std::move(early.extract(next).mapped());
      Deliver(schedule, next, completion, &subscribed.chunk_digests[next], sink);
      window.Done(next);
      NoMessage(link_.Receive(Deadline(Clock::now()), stage));
    }
    window.ExpectOffered(subscribed.offer_id);
  }

  // Checks a chunk against its digest where that is known already, and hands it on. Returns the digest of its bytes.
  Digest Deliver(const Schedule& schedule, std::uint32_t index, const ChunkCompletion& completion,
                 const Digest* expected, FetchSink& sink) {
    std::vector<std::byte> corrupted;
    std::vector<RegionView> views = completion.views;
    if (failpoints_.Hit("receive.chunk")) views = Corrupted(views, corrupted);
    const auto begin = Clock::now();
    const Digest digest = DigestOfViews(views);
    stats_.verify_seconds += SecondsSince(begin);
    const Chunk& chunk = schedule.chunks()[index];
    stats_.bytes += chunk.num_bytes;
    if (expected != nullptr) CheckDigest(schedule, index, *expected, digest);
    sink.OnChunk(index, views);
    ++stats_.chunks;
    return digest;
  }

  void CheckDigest(const Schedule& schedule, std::uint32_t index, const Digest& expected, const Digest& got) const {
    if (expected == got) return;
    const Region& first = schedule.RegionsOf(schedule.chunks()[index]).front();
    throw Error(ErrorCode::kCorrupt, Stage(index, schedule.chunks().size()) + " (from '" +
                                         manifest_.entry(first.tensor).spec.name + "' on): digest expected " +
                                         expected.ToHex() + ", got " + got.ToHex());
  }

  // A copy of the views with one byte flipped, in memory that is ours.
  static std::vector<RegionView> Corrupted(std::span<const RegionView> views, std::vector<std::byte>& memory) {
    std::size_t bytes = 0;
    for (const RegionView& view : views) bytes += view.num_bytes();
    memory.resize(bytes);
    std::vector<RegionView> copies;
    std::byte* at = memory.data();
    for (const RegionView& view : views) {
      Pack(view, at);
      copies.push_back({.base = at, .row_bytes = view.row_bytes, .rows = view.rows, .stride = view.row_bytes});
      at += view.num_bytes();
    }
    if (!memory.empty()) memory[memory.size() / 2] ^= std::byte{1};
    return copies;
  }

  void FetchStream(const Schedule& schedule, ChunkWindow& window, FetchSink& sink, Deadline deadline) {
    const auto chunks_of = ChunksByTensor(schedule);
    std::vector<std::optional<Digest>> digests(schedule.chunks().size());
    std::uint32_t tensors = 0;
    while (true) {
      const std::string stage =
          "waiting for tensor " + std::to_string(tensors + 1) + " of the stream of " + manifest_.version().ToString();
      const auto begin = Clock::now();
      wire::Message message = link_.Expect(deadline, stage);
      stats_.receive_seconds += SecondsSince(begin);
      if (const auto* end = std::get_if<wire::StreamEnd>(&message))
        return CheckTrailer(schedule, *end, digests, tensors);
      const auto* ready = std::get_if<wire::TensorReady>(&message);
      if (ready == nullptr || ready->tensor >= manifest_.entries().size()) {
        throw Error(ErrorCode::kCorrupt, "publisher " + link_.endpoint() + ", " + stage + ": unexpected '" +
                                             std::string(wire::MessageName(message)) + "'");
      }
      ++tensors;
      ++stats_.tensors;
      sink.OnTensor(ready->tensor, ready->amax, ready->digest);
      if (!ready->row_amax.empty()) {
        CheckRows(ready->tensor, ready->row_amax.size());
        sink.OnRowAmax(ready->tensor, ready->row_amax);
      }
      const auto wanted = chunks_of.find(ready->tensor);
      if (wanted != chunks_of.end())
        FetchTensor(schedule, wanted->second, ready->offer_id, window, sink, digests, deadline);
      link_.Send(wire::TensorDone{ready->sequence});
    }
  }

  static std::map<std::uint32_t, std::vector<std::uint32_t>> ChunksByTensor(const Schedule& schedule) {
    std::map<std::uint32_t, std::vector<std::uint32_t>> chunks_of;
    for (std::uint32_t i = 0; i < schedule.chunks().size(); ++i) {
      const auto regions = schedule.RegionsOf(schedule.chunks()[i]);
      LAYERCAST_CHECK(!regions.empty());
      chunks_of[regions.front().tensor].push_back(i);
    }
    return chunks_of;
  }

  // An offer of a stream holds one tensor, number 0.
  void FetchTensor(const Schedule& schedule, const std::vector<std::uint32_t>& chunks, std::uint64_t offer,
                   ChunkWindow& window, FetchSink& sink, std::vector<std::optional<Digest>>& digests,
                   Deadline deadline) {
    std::size_t submitted = 0;
    const auto next = [&](std::size_t done) {
      for (; submitted < chunks.size() && window.HasRoom(); ++submitted) {
        const Chunk& chunk = schedule.chunks()[chunks[submitted]];
        std::vector<Region> regions(schedule.RegionsOf(chunk).begin(), schedule.RegionsOf(chunk).end());
        for (Region& region : regions) region.tensor = 0;
        window.Submit(chunks[submitted], offer, regions, chunk.num_bytes);
      }
      return NextChunk(window, deadline, Stage(chunks[done], schedule.chunks().size()));
    };
    for (std::size_t done = 0; done < chunks.size(); ++done) {
      // Streams are checked as a whole at the end, so the order within one tensor does not matter.
      const ChunkCompletion completion = NamingTensor(schedule, chunks[done], [&] { return next(done); });
      const auto index = static_cast<std::uint32_t>(completion.ticket);
      digests[index] = Deliver(schedule, index, completion, nullptr, sink);
      window.Done(index);
    }
    window.ExpectOffered(offer);
  }

  // The channel knows the tensor by a number of the offer alone. A region that is not there was in the manifest: then
  // the publisher does not hold what it promised.
  template <typename Receive>
  ChunkCompletion NamingTensor(const Schedule& schedule, std::uint32_t chunk, const Receive& receive) const {
    try {
      return receive();
    } catch (const Error& error) {
      const bool short_tensor = error.code() == ErrorCode::kInvalidArgument;
      const std::uint32_t tensor = schedule.RegionsOf(schedule.chunks()[chunk]).front().tensor;
      throw Error(short_tensor ? ErrorCode::kCorrupt : error.code(),
                  "'" + manifest_.entry(tensor).spec.name + "': " + error.what());
    }
  }

  void CheckTrailer(const Schedule& schedule, const wire::StreamEnd& end,
                    const std::vector<std::optional<Digest>>& digests, std::uint32_t tensors) const {
    if (end.tensors != tensors || end.chunk_digests.size() != digests.size()) {
      throw Error(ErrorCode::kCorrupt, "publisher " + link_.endpoint() + " says it sent " +
                                           std::to_string(end.tensors) + " tensors in " +
                                           std::to_string(end.chunk_digests.size()) + " chunks, got " +
                                           std::to_string(tensors) + " in " + std::to_string(digests.size()));
    }
    for (std::uint32_t i = 0; i < digests.size(); ++i) {
      if (digests[i]) CheckDigest(schedule, i, end.chunk_digests[i], *digests[i]);
    }
    // A chunk that never came is the pipeline's to name: it knows the tensor's layer.
  }

  std::string Stage(std::size_t chunk, std::size_t count) const {
    return "chunk " + std::to_string(chunk + 1) + " of " + std::to_string(count) + " of " +
           manifest_.version().ToString() + " over " + stats_.channel;
  }

  const FetchOptions options_;
  FailPoints& failpoints_;
  HostMemory host_memory_;
  PublisherLink link_;
  Manifest manifest_;
  PublishMode mode_ = PublishMode::kSnapshot;
  std::unique_ptr<FetchingEnd> channel_;
  FetchStats stats_;
  bool closed_ = false;
};

}  // namespace

std::unique_ptr<FetchSession> FetchSession::Open(const std::string& endpoint, const ReceiverIdentity& self,
                                                 const std::string& lineage, std::optional<std::uint64_t> step,
                                                 const FetchOptions& options, FailPoints& failpoints,
                                                 Deadline deadline) {
  auto session = std::make_unique<Session>(endpoint, options, failpoints);
  session->Open(MakeHello(self, lineage, step), deadline);
  return session;
}

}  // namespace layercast
