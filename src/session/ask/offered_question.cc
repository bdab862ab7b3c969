#include "src/session/ask/offered_question.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "layercast/error.h"
#include "src/base/log.h"

namespace layercast {
namespace {

constexpr std::chrono::milliseconds kOfferSilence{5000};
constexpr const char* kAskingOffered = "asking what it has offered";

}  // namespace

OfferedQuestion::OfferedQuestion(KeptPeers& kept, std::string endpoint, Keys keys, wire::OfferedSince since)
    : kept_(kept), peer_{"publisher", std::move(endpoint)}, keys_(std::move(keys)), since_(std::move(since)) {
  std::unique_ptr<PublisherLink> link = kept_.Take(peer_).link;
  if (link == nullptr) return;
  try {
    link->BeginAnew(kOfferSilence, {});
    link->Send(since_);
    link_ = std::move(link);
  } catch (const std::exception& error) {
    log::debug("connecting anew: {}", error.what());
  }
}

wire::OfferedVersions OfferedQuestion::Answer(Deadline deadline) {
  return NamingPeer(peer_, [&] {
    if (link_ == nullptr) return AskAnew(deadline);
    try {
      return Expect(deadline.AtMost(KeptPeers::kAnswer));
    } catch (const Error& error) {
      const bool lost = error.code() == ErrorCode::kUnavailable || error.code() == ErrorCode::kDeadlineExceeded;
      if (!lost || deadline.Passed()) throw;
      log::debug("connecting anew: {}", error.what());
    }
    return AskAnew(deadline);
  });
}

// Not even the name of the publisher's host is looked up for longer than there is time.
wire::OfferedVersions OfferedQuestion::AskAnew(Deadline deadline) {
  link_ = std::make_unique<PublisherLink>(peer_, keys_, std::min(kOfferSilence, deadline.Remaining()));
  link_->Send(since_);
  return Expect(deadline);
}

wire::OfferedVersions OfferedQuestion::Expect(Deadline deadline) {
  wire::Message message = link_->Expect(deadline, kAskingOffered);
  auto* const answer = std::get_if<wire::OfferedVersions>(&message);
  if (answer == nullptr) link_->RefuseAnswer(kAskingOffered, "'offered_versions'", message);
  kept_.Keep({std::move(link_)});
  return std::move(*answer);
}

}  // namespace layercast
