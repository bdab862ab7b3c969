#include "src/transport/zmq/zmq_fetching_end.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "layercast/error.h"
#include "src/transport/zmq/sockets.h"

namespace layercast::zmq_channel {
namespace {

constexpr std::chrono::milliseconds kQuiet{1000};    // then we ask
constexpr std::chrono::milliseconds kSilence{3000};  // after asking: the publisher is lost

std::span<const std::byte> BytesOf(const zmq::message_t& message) {
  return {static_cast<const std::byte*>(message.data()), message.size()};
}

// Where each region lies once the chunk is packed into `destination`. Throws kInvalidArgument.
std::vector<RegionView> PackedViews(std::span<const Region> regions, std::span<std::byte> destination) {
  std::vector<RegionView> views;
  views.reserve(regions.size());
  std::size_t offset = 0;
  for (const Region& region : regions) {
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(region.rows, region.row_bytes, &bytes) || bytes > destination.size() - offset) {
      throw Error(ErrorCode::kInvalidArgument,
                  "the regions need more than the " + std::to_string(destination.size()) + " bytes of the destination");
    }
    views.push_back({destination.data() + offset, region.row_bytes, region.rows, region.row_bytes});
    offset += bytes;
  }
  return views;
}

}  // namespace

ZmqFetchingEnd::ZmqFetchingEnd(const std::string& address, Deadline deadline)
    : guard_("zmq: publisher at " + address), socket_(MakeDealer(context_)), monitor_(context_, socket_) {
  guard_.Run([&] { Greet(address, deadline); });
}

void ZmqFetchingEnd::Greet(const std::string& address, Deadline deadline) {
  try {
    if (!address.starts_with("tcp://")) throw Error(ErrorCode::kUnavailable, "not an address of this channel");
    socket_.set(zmq::sockopt::ipv6, address.starts_with("tcp://["));
    socket_.connect(address);
  } catch (const zmq::error_t& error) {
    throw Error(ErrorCode::kUnavailable, std::string("cannot connect: ") + error.what());
  }
  for (bool sent = false; !welcomed_;) {
    zmq::pollitem_t items[] = {{socket_.handle(), 0, static_cast<short>(sent ? ZMQ_POLLIN : ZMQ_POLLOUT), 0},
                               {monitor_.events().handle(), 0, ZMQ_POLLIN, 0}};
    WaitFor(items, deadline.Remaining());
    if (items[0].revents != 0 && !sent) Send(EncodeHello());
    if (items[0].revents != 0 && sent) Receive();
    sent = sent || items[0].revents != 0;
    if (welcomed_) return;
    ExpectConnected();
    if (deadline.Passed()) throw Error(ErrorCode::kDeadlineExceeded, "it did not answer our HELLO in time");
  }
}

void ZmqFetchingEnd::Submit(const ChunkRequest& request) {
  guard_.Run([&] {
    if (request.regions.size() > kMaxRegionsUnderWay - regions_under_way_ ||
        under_way_.size() == kMaxRequestsUnderWay) {
      throw Error(ErrorCode::kInvalidArgument, "more requests or regions under way than the channel allows");
    }
    UnderWay chunk;
    chunk.views = PackedViews(request.regions, request.destination);
    std::size_t bytes = 0;
    for (const RegionView& view : chunk.views) bytes += view.num_bytes();
    chunk.destination = request.destination.first(bytes);
    const std::vector<std::byte> message = EncodeRequest(request.ticket, request.offer_id, request.regions);
    if (message.size() > kMaxRequestBytes) throw Error(ErrorCode::kInvalidArgument, "too many regions in one request");
    if (!under_way_.emplace(request.ticket, std::move(chunk)).second) {
      throw Error(ErrorCode::kInvalidArgument, "ticket " + std::to_string(request.ticket) + " is under way already");
    }
    regions_under_way_ += request.regions.size();
    ExpectConnected();
    Send(message);
  });
}

std::optional<ChunkCompletion> ZmqFetchingEnd::Poll(Deadline deadline) {
  return guard_.Run([&]() -> std::optional<ChunkCompletion> {
    while (done_.empty() && !Receive()) {
      if (under_way_.empty()) {
        ExpectConnected();
        return std::nullopt;
      }
      if (deadline.Passed()) return std::nullopt;
      Wait(deadline);
    }
    ChunkCompletion completion = std::move(done_.front());
    done_.pop_front();
    return completion;
  });
}

void ZmqFetchingEnd::Close() noexcept {
  guard_.Close();
  under_way_.clear();
  done_.clear();
  socket_.close();
}

void ZmqFetchingEnd::Send(const std::vector<std::byte>& message) {
  if (!socket_.send(zmq::buffer(message), zmq::send_flags::dontwait)) {
    throw Error(ErrorCode::kUnavailable, "it takes no messages");
  }
}

bool ZmqFetchingEnd::Receive() {
  zmq::message_t message;
  while (done_.empty() && socket_.recv(message, zmq::recv_flags::dontwait)) {
    heard_ = Deadline::Clock::now();
    pinged_ = false;
    zmq::message_t piece;
    bool whole = !message.more() || socket_.recv(piece, zmq::recv_flags::dontwait).has_value();
    whole = whole && !piece.more() && message.more() == (DecodeKind(BytesOf(message)) == Kind::kPiece);
    if (!whole) throw Error(ErrorCode::kCorrupt, "a message with a wrong number of frames");
    TakeMessage(BytesOf(message), piece);
  }
  return !done_.empty();
}

void ZmqFetchingEnd::TakeMessage(std::span<const std::byte> message, zmq::message_t& piece) {
  switch (DecodeKind(message)) {
    case Kind::kPiece: return TakePiece(DecodePieceHeader(message), BytesOf(piece));
    case Kind::kPong: return DecodeBare(message);
    case Kind::kWelcome:
      if (DecodeWelcome(message) == 0) throw Error(ErrorCode::kUnsupported, "it speaks no version of ours");
      welcomed_ = true;
      return;
    case Kind::kRefused: {
      const Refusal refusal = DecodeRefusal(message);
      throw Error(refusal.code, "it refused: " + refusal.message);
    }
    default: throw Error(ErrorCode::kCorrupt, "an unknown kind of message");
  }
}

void ZmqFetchingEnd::TakePiece(const PieceHeader& header, std::span<const std::byte> bytes) {
  const auto found = under_way_.find(header.ticket);
  const bool expected = found != under_way_.end() && header.offset == found->second.arrived &&
                        header.bytes == bytes.size() &&
                        bytes.size() <= found->second.destination.size() - found->second.arrived;
  if (!expected) {
    throw Error(ErrorCode::kCorrupt, "a piece that was not asked for: ticket " + std::to_string(header.ticket) +
                                         ", offset " + std::to_string(header.offset) + ", " +
                                         std::to_string(bytes.size()) + " bytes");
  }
  UnderWay& chunk = found->second;
  if (!bytes.empty()) std::memcpy(chunk.destination.data() + chunk.arrived, bytes.data(), bytes.size());
  chunk.arrived += bytes.size();
  if (chunk.arrived < chunk.destination.size()) return;
  regions_under_way_ -= chunk.views.size();
  done_.push_back({header.ticket, std::move(chunk.views)});
  under_way_.erase(found);
}

void ZmqFetchingEnd::Wait(Deadline deadline) {
  // The socket is drained. What counts is silence after we asked: the caller may have been busy elsewhere for long.
  const auto now = Deadline::Clock::now();
  if (pinged_ && now - pinged_at_ >= kSilence) {
    throw Error(ErrorCode::kUnavailable, "silent for " + std::to_string((now - heard_) / std::chrono::seconds(1)) +
                                             " seconds, with " + std::to_string(under_way_.size()) +
                                             " requests under way");
  }
  ExpectConnected();
  if (!pinged_ && now - heard_ >= kQuiet) {
    Send(EncodePing());
    pinged_ = true;
    pinged_at_ = now;
  }
  zmq::pollitem_t items[] = {{socket_.handle(), 0, ZMQ_POLLIN, 0}, {monitor_.events().handle(), 0, ZMQ_POLLIN, 0}};
  WaitFor(items, deadline.AtMost(kQuiet / 2).Remaining());
}

void ZmqFetchingEnd::ExpectConnected() {
  const std::string& ended = monitor_.Ended();
  if (!ended.empty()) throw Error(ErrorCode::kUnavailable, ended);
}

}  // namespace layercast::zmq_channel
