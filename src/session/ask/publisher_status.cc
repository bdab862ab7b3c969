#include "src/session/ask/publisher_status.h"

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "layercast/error.h"
#include "src/session/link/naming_peer.h"
#include "src/session/link/publisher_link.h"

namespace layercast {

namespace {

constexpr int kClockExchanges = 8;

// Throws kCorrupt, whatever is wrong with the text.
ProcessTrace TraceFromText(std::span<const std::byte> text) {
  const std::string_view json(reinterpret_cast<const char*>(text.data()), text.size());
  try {
    return ProcessTraceFromJson(nlohmann::ordered_json::parse(json));
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::kCorrupt, std::string("the trace of a session: ") + error.what());
  }
}

// Sends the request and returns its answer, which is called `expected`.
template <typename Answer>
Answer Ask(const std::string& endpoint, const Keys& keys, wire::Message request, const std::string& stage,
           const std::string& expected, Deadline deadline) {
  const PeerName peer{"publisher", endpoint};
  return NamingPeer(peer, [&] {
    PublisherLink link(peer, keys, std::chrono::milliseconds(5000));
    link.Send(std::move(request));
    wire::Message message = link.Expect(deadline, stage);
    if (auto* answer = std::get_if<Answer>(&message)) return std::move(*answer);
    link.RefuseAnswer(stage, "'" + expected + "'", message);
  });
}

}  // namespace

wire::StatusAnswer AskPublisherStatus(const std::string& endpoint, const Keys& keys, Deadline deadline) {
  return Ask<wire::StatusAnswer>(endpoint, keys, wire::StatusRequest{}, "asking for its status", "status_answer",
                                 deadline);
}

wire::VersionsAnswer AskVersions(const std::string& endpoint, const Keys& keys, wire::Message order,
                                 Deadline deadline) {
  return Ask<wire::VersionsAnswer>(endpoint, keys, std::move(order), "asking for its versions", "versions_answer",
                                   deadline);
}

std::optional<ProcessTrace> AskSessionTrace(const std::string& endpoint, const Keys& keys,
                                            const wire::SessionTrace& ask, Deadline deadline) {
  const PeerName peer{"publisher", endpoint};
  const std::string stage = "asking for the trace of a session";
  return NamingPeer(peer, [&]() -> std::optional<ProcessTrace> {
    PublisherLink link(peer, keys, std::chrono::milliseconds(5000));
    std::optional<ClockOffset> clock;
    wire::SessionTrace answer;
    for (int exchange = 0; exchange < kClockExchanges; ++exchange) {
      const std::int64_t asked = TraceNow();
      link.Send(exchange == 0 ? ask : wire::SessionTrace{});  // of no session: for the clock alone
      wire::Message message = link.Expect(deadline, stage);
      auto* const came = std::get_if<wire::SessionTrace>(&message);
      if (came == nullptr) link.RefuseAnswer(stage, "'session_trace'", message);
      clock = BetterOffset(clock, asked, static_cast<std::int64_t>(came->heard_ns),
                           static_cast<std::int64_t>(came->answered_ns), TraceNow());
      if (exchange == 0) answer = std::move(*came);
      if (answer.trace.empty()) return std::nullopt;
    }
    ProcessTrace trace = TraceFromText(answer.trace);
    if (trace.clock.empty() || trace.clock != NameOfClock()) trace.MoveBy(*clock);
    return trace;
  });
}

wire::PublishedFolder OrderFolder(const std::string& endpoint, const Keys& keys, wire::PublishFolder order,
                                  Deadline deadline) {
  return Ask<wire::PublishedFolder>(endpoint, keys, std::move(order), "having it publish", "published_folder",
                                    deadline);
}

}  // namespace layercast
