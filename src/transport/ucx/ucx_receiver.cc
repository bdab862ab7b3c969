#include "src/transport/ucx/ucx_receiver.h"

#include <algorithm>
#include <utility>

#include "layercast/error.h"
#include "src/base/log.h"
#include "src/net/message_order.h"
#include "src/transport/ucx/wire/settings.h"

namespace layercast::ucx_channel {
namespace {

// Shorter pieces are sent together with their header. Longer ones are sent by rendezvous: once the receiver has said
// where they belong, and with no copy on the way.
constexpr std::size_t kRendezvousFrom = std::size_t{32} << 10;
// While more bytes of messages than this wait here for a receiver to read them, nothing more is granted to it.
constexpr std::size_t kMaxUnsent = std::size_t{1} << 20;

}  // namespace

Receiver::~Receiver() {
  if (link_) link_->Disconnect();  // runs callbacks, which use link_
  link_.reset();
  reads_.reset();
}

// HELLO comes first. The receiver has greeted when it has answered WELCOME: then the lanes are set up.
bool Receiver::OnHello(std::span<const std::byte> message) {
  const bool welcomed = link_ || reads_;
  welcomed ? TakeAnswer(message) : TakeHello(Decode<Hello>(message));
  return welcomed;
}

void Receiver::OnMessage(Kind kind, std::span<const std::byte> message) {
  if (kind != kRead || !reads_) return ChannelPeer::OnMessage(kind, message);
  reads_->Return(Decode<Read>(message).ticket);
}

void Receiver::TakeAnswer(std::span<const std::byte> message) {
  if (reads_) {
    if (Decode<Read>(message).ticket != 0) throw Error(ErrorCode::kCorrupt, "READ of what was not granted");
    return;
  }
  link_->Connect(Decode<WorkerAddress>(message).address);
  SendPong();  // shows the receiver that the lanes work
}

void Receiver::OnPing() {
  if (reads_) return ChannelPeer::OnPing();
  pong_owed_ = true;
}

void Receiver::TakeHello(const Hello& hello) {
  if (!Enters(context_.invitations, hello.key)) {
    throw Error(ErrorCode::kCorrupt, "HELLO: a key that was not handed out, or is too old or used up");
  }
  token_ = RandomToken();
  if (WelcomeToRead(hello)) return;
  const Lanes lanes = ShareMemory(HostIdentity::Mine(), hello.host) ? Lanes::kSharedMemory : Lanes::kNetwork;
  spins_ = lanes == Lanes::kSharedMemory;
  try {
    link_.emplace(lanes, control_.Device());
  } catch (const Error& error) {  // UCX has no such lanes here, which both ends should log
    log::warn("ucx: {}", error.what());
    return Refuse({0, ErrorCode::kUnsupported, error.what()});
  }
  control_.Send(Encode(Welcome{kVersion, lanes, token_, link_->Address(), {}}));
}

bool Receiver::WelcomeToRead(const Hello& hello) {
  if (!hello.reads || context_.readable == nullptr || !context_.readable->usable()) return false;
  // On one host shared memory is as good, and a publisher that listens on loopback alone is not to open lanes that
  // other hosts can reach.
  const bool near = ShareMemory(HostIdentity::Mine(), hello.host) || control_.Device() == "lo";
  if (near && !context_.reads_anywhere) return false;
  try {
    reads_.emplace(context_.book, *context_.readable, token_);
    control_.Send(Encode(reads_->Describe(token_)));
  } catch (const Error& error) {
    reads_.reset();
    log::warn("ucx: receiver {} gets messages, for it cannot read one-sided: {}", number(), error.what());
  }
  return reads_.has_value();
}

void Receiver::OnRequest(const Request& request) {
  if (reads_ && reads_->size() + replies_.all().size() >= kMaxRequestsUnderWay) {
    throw Error(ErrorCode::kCorrupt, "too many requests under way");
  }
  replies_.Push(request, context_.book, context_.failpoints.load());
}

bool Receiver::Progress() {
  if (reads_) return ProgressReads();
  if (!greeted()) return false;
  if (pong_owed_ && !pong_under_way_) SendPong();
  Feed();
  const bool moved = link_->Progress();
  if (!link_->failure().empty()) throw Error(ErrorCode::kUnavailable, link_->failure());
  return moved;
}

bool Receiver::ProgressReads() {
  const bool moved = reads_->target().Progress();
  if (!greeted()) return moved;
  if (replies_.empty() || control_.unsent() > kMaxUnsent) return moved;
  GrantNext();
  return true;
}

void Receiver::GrantNext() {
  const Reply& reply = replies_.front();
  try {
    reads_->Grant(reply, control_);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kCorrupt) throw;
    return Refuse({reply.ticket, error.code(), error.what()});
  }
  replies_.Pop();
}

bool Receiver::HoldsOverdue() const {
  if (reads_) return reads_->HoldOverdue();
  return std::ranges::any_of(under_way_,
                             [](const auto& piece) { return piece->offered != nullptr && piece->offered->overdue; });
}

void Receiver::Feed() {
  while (!replies_.empty() && under_way_.size() < kPiecesUnderWay && window_.HasRoom()) {
    Reply& reply = replies_.front();
    OfferUse use = context_.book.Begin(reply.offered);
    if (use == nullptr) return Refuse({reply.ticket, ErrorCode::kNotFound, "the offer was removed"});
    SendPiece(reply, std::move(use));
    if (reply.plan.done()) replies_.Pop();
  }
}

void Receiver::SendPiece(Reply& reply, OfferUse use) {
  std::unique_ptr<Piece> piece = TakeSpare();
  piece->offered = std::move(use);
  const ReplyPlan::Next next = reply.plan.Take(window_.piece_bytes());
  std::span<const std::byte> data = next.in_place;
  if (data.empty()) {
    if (piece->gathered.size() == 0) piece->gathered = Buffer(memory_, kPieceBytes);
    data = piece->gathered.span().first(reply.plan.Gather(piece->gathered.data(), window_.piece_bytes()));
  }
  piece->header = Encode(ActiveHeader{Kind::kPiece, token_, reply.ticket, next.offset});
  Send(std::move(piece), data);
}

void Receiver::SendPong() {
  pong_owed_ = false;
  pong_under_way_ = true;
  std::unique_ptr<Piece> pong = TakeSpare();
  pong->header = Encode(ActiveHeader{Kind::kPong, token_, 0, 0});
  Send(std::move(pong), {});
}

void Receiver::Send(std::unique_ptr<Piece> piece, std::span<const std::byte> data) {
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  params.cb.send = &OnSent;
  params.user_data = piece.get();
  const bool rendezvous = data.size() >= kRendezvousFrom;
  params.flags = rendezvous ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER;
  piece->windowed = rendezvous ? data.size() : 0;
  piece->sent = Deadline::Clock::now();
  window_.Sent(piece->windowed);
  const Piece& sent = *under_way_.emplace_back(std::move(piece));
  const BytesLeave leaving(data);
  const ucs_status_ptr_t request = ucp_am_send_nbx(link_->endpoint(), kActiveMessage, sent.header.data(),
                                                   sent.header.size(), data.data(), data.size(), &params);
  if (UCS_PTR_IS_PTR(request)) return link_->Began();
  End(sent);
  if (UCS_PTR_IS_ERR(request)) throw Error(ErrorCode::kUnavailable, ucs_status_string(UCS_PTR_STATUS(request)));
}

std::unique_ptr<Receiver::Piece> Receiver::TakeSpare() {
  if (spare_.empty()) {
    spare_.push_back(std::make_unique<Piece>());
    spare_.back()->receiver = this;
  }
  std::unique_ptr<Piece> piece = std::move(spare_.back());
  spare_.pop_back();
  return piece;
}

void Receiver::OnSent(void* request, ucs_status_t /*status*/, void* piece) {
  // Whatever the status is, UCX no longer reads the piece. If the connection is lost, the link's failure says so.
  ucp_request_free(request);
  const auto& sent = *static_cast<const Piece*>(piece);
  sent.receiver->link_->Ended();
  sent.receiver->End(sent);
}

void Receiver::End(const Piece& piece) {
  window_.Came(piece.windowed, Deadline::Clock::now() - piece.sent);
  const auto at = std::ranges::find(under_way_, &piece, [](const auto& owned) { return owned.get(); });
  if ((*at)->offered == nullptr) pong_under_way_ = false;
  (*at)->offered = OfferUse();
  spare_.push_back(std::move(*at));
  under_way_.erase(at);
}

}  // namespace layercast::ucx_channel
