#include "src/transport/shm/shm_offering_end.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "layercast/error.h"
#include "src/base/log.h"
#include "src/net/local_socket.h"
#include "src/net/poll_for.h"

namespace layercast::shm_channel {
namespace {

constexpr std::size_t kMaxConnections = 256;
constexpr std::chrono::milliseconds kGreeting{5000};
constexpr std::chrono::milliseconds kStep{1000};  // how late a missing greeting may be noticed

}  // namespace

ShmOfferingEnd::ShmOfferingEnd()
    : listener_(ListenLocally(SOCK_SEQPACKET, name_)),
      service_("shm", "lc-shm", wake_, [this](const std::stop_token& stop) { Run(stop); }) {}

void ShmOfferingEnd::Add(const Offer& offer) {
  auto table = std::make_unique<WrittenTable>(offer, tables_, arena_);
  const std::lock_guard lock(mutex_);
  if (!offers_.emplace(offer.id, std::move(table)).second) {
    throw Error(ErrorCode::kInvalidArgument, "shm: offer " + std::to_string(offer.id) + " is there already");
  }
}

void ShmOfferingEnd::Remove(std::uint64_t offer_id) {
  const std::lock_guard lock(mutex_);
  offers_.erase(offer_id);
}

void ShmOfferingEnd::Run(const std::stop_token& stop) {
  std::vector<Connection> connections;
  std::vector<pollfd> wanted;
  while (!stop.stop_requested()) {
    wanted.assign({{wake_.fd(), POLLIN, 0}, {listener_.get(), pause_.events(), 0}});
    for (const Connection& connection : connections) wanted.push_back({connection.socket.get(), POLLIN, 0});
    PollFor(wanted, pause_.AtMost(kStep));
    // From the back, so that removing a connection does not change the indices of those still to be looked at.
    for (std::size_t i = connections.size(); i-- > 0;) {
      const bool ended = wanted[i + 2].revents != 0 && !Serve(connections[i]);
      const bool rude = !connections[i].greeted && connections[i].greeting.Passed();
      if (ended || rude) connections.erase(connections.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (wanted[1].revents != 0) AcceptAll(connections);
  }
}

void ShmOfferingEnd::AcceptAll(std::vector<Connection>& connections) {
  errno = 0;
  while (UniqueFd socket = AcceptLocally(listener_)) {
    if (connections.size() == kMaxConnections) continue;  // closes the socket
    connections.push_back({std::move(socket), false, Deadline::After(kGreeting)});
  }
  pause_.Failed(errno);
}

bool ShmOfferingEnd::Serve(Connection& connection) {
  Message message;
  switch (ReceiveMessage(connection.socket, message)) {
    case Received::kNothing: return true;
    case Received::kEnd: return false;
    case Received::kMessage:
      if (Answer(connection, message)) return true;
      [[fallthrough]];
    case Received::kGarbage:
      log::warn("shm: a receiver breaks the protocol or takes no answers, and loses its connection");
      return false;
  }
  return false;
}

bool ShmOfferingEnd::Answer(Connection& connection, const Message& message) {
  if (!connection.greeted) {
    connection.greeted = message.kind == Kind::kHello && message.number != 0 && message.value == kChannelMagic;
    return connection.greeted && SendMessage(connection.socket, {Kind::kWelcome, kVersion, kChannelMagic});
  }
  return message.kind == Kind::kAttach && message.number == 0 && Attach(connection.socket, message.value);
}

bool ShmOfferingEnd::Attach(const UniqueFd& socket, std::uint64_t offer_id) {
  const std::lock_guard lock(mutex_);
  const auto found = offers_.find(offer_id);
  if (found == offers_.end()) return SendMessage(socket, {Kind::kRefused, kNoSuchOffer, offer_id});
  const WrittenTable& table = *found->second;
  std::vector<int> fds = {table.place().segment->file.fd.get()};
  for (const auto& segment : table.segments()) fds.push_back(segment->file.fd.get());
  const Message attached{.kind = Kind::kAttached,
                         .number = static_cast<std::uint32_t>(table.segments().size()),
                         .value = offer_id,
                         .offset = table.place().offset,
                         .bytes = table.bytes()};
  return SendMessage(socket, attached, fds);
}

}  // namespace layercast::shm_channel
