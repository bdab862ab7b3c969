#include "src/session/ask/publisher_status.h"

#include <utility>

#include "src/session/link/naming_peer.h"
#include "src/session/link/publisher_link.h"

namespace layercast {

namespace {

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

wire::PublishedFolder OrderFolder(const std::string& endpoint, const Keys& keys, wire::PublishFolder order,
                                  Deadline deadline) {
  return Ask<wire::PublishedFolder>(endpoint, keys, std::move(order), "having it publish", "published_folder",
                                    deadline);
}

}  // namespace layercast
