#include "src/session/fetch.h"

#include <utility>

#include "layercast/error.h"
#include "src/session/choose_channel.h"
#include "src/session/chunk_receiver.h"
#include "src/session/fetch_snapshot.h"
#include "src/session/fetch_stream.h"
#include "src/session/publisher_link.h"

namespace layercast {
namespace {

wire::Hello MakeHello(const ReceiverIdentity& self, const std::string& lineage, std::optional<std::uint64_t> step) {
  wire::Hello hello;
  hello.engine = self.engine;
  hello.attempt = self.attempt;
  hello.rank = static_cast<std::uint32_t>(self.rank);
  hello.ranks = static_cast<std::uint32_t>(self.ranks);
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
    link_.Agree(welcome.protocol);
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

  FetchStats Fetch(const Schedule& schedule, std::span<const AmaxRequest> amax_requests, FetchSink& sink,
                   Deadline deadline) override {
    CheckAskable(amax_requests);
    const ChunkReceiverParts parts{manifest_, schedule, amax_requests, link_, *channel_, sink, stats_, failpoints_};
    ChunkReceiver receiver(parts, options_.slots, options_.memory != nullptr ? *options_.memory : host_memory_,
                           deadline);
    const wire::Subscribed subscribed = Subscribe(schedule, amax_requests, deadline);
    try {
      for (const auto& [tensor, values] : subscribed.amax) {
        receiver.CheckAmax(tensor, values.size());
        sink.OnAxisAmax(tensor, values);
      }
      if (mode_ == PublishMode::kSnapshot) {
        FetchSnapshot(subscribed, receiver);
      } else {
        FetchStream(receiver);
      }
    } catch (...) {
      channel_->Close();  // before the receiver's slots go: nothing may be written to them any more
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

  void CheckAskable(std::span<const AmaxRequest> requests) const {
    if (link_.protocol() >= wire::kAmaxAxesProtocol) return;
    for (const auto& [tensor, kept] : requests) {
      if (kept == kKeptRows) continue;
      const TensorSpec& spec = manifest_.entry(tensor).spec;
      throw Error(ErrorCode::kUnsupported, "publisher " + link_.endpoint() + ": '" + spec.name + "' (" +
                                               Describe(spec) +
                                               ") needs magnitudes of other axes than its rows, which protocol " +
                                               std::to_string(wire::kAmaxAxesProtocol) + " has; the publisher speaks " +
                                               std::to_string(link_.protocol()));
    }
  }

  wire::Subscribed Subscribe(const Schedule& schedule, std::span<const AmaxRequest> amax_requests, Deadline deadline) {
    const std::string stage = "subscribing to " + manifest_.version().ToString();
    wire::Subscribe subscribe;
    subscribe.schedule_digest = schedule.digest();
    subscribe.amax_requests.assign(amax_requests.begin(), amax_requests.end());
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
    return subscribed;
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
