#include "src/transport/nccl/receiver.h"

#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "layercast/error.h"

namespace layercast::nccl_channel {
namespace {

constexpr std::chrono::seconds kTimeToGreet{5};
constexpr std::chrono::seconds kTimeToStand{30};  // NCCL looks at the whole machine first
constexpr std::chrono::seconds kStalled{10};

}  // namespace

Receiver::Receiver(UniqueFd connected, const ReceiverContext& context, std::uint64_t epoch)
    : control_(std::move(connected)), context_(context), number_(epoch), stand_by_(Deadline::After(kTimeToGreet)) {}

Receiver::~Receiver() {
  epoch_.reset();  // before the memory that it works on
  for (const Outgoing& piece : filling_) {
    if (piece.offered != nullptr) context_.book.End(*piece.offered);
  }
}

void Receiver::TakeMessages() {
  control_.Flush();
  more_ = control_.ReceiveSome([this](std::span<const std::byte> message) {
    if (!refused_) Take(message);
  });
}

void Receiver::Take(std::span<const std::byte> message) {
  if (!epoch_) return TakeHello(DecodeHello(message));  // the first thing that anybody says
  const Kind kind = DecodeKind(message);
  if (kind == Kind::kRequest) return TakeRequest(DecodeRequest(message));
  if (kind == kGo) return TakeGo(DecodeGo(message));
  if (kind != Kind::kPing) throw Error(ErrorCode::kCorrupt, "an unknown kind of message");
  DecodeBare(message);
  control_.Send(EncodePong());
}

void Receiver::TakeHello(const Hello& hello) {
  if (!SameToken(hello.key, context_.key)) throw Error(ErrorCode::kCorrupt, "HELLO: a wrong key");
  const int mine = context_.library.version();
  if (hello.nccl != static_cast<std::uint32_t>(mine)) {
    return Refuse({0, ErrorCode::kUnsupported,
                   "NCCL works among equal versions alone: the publisher's is " + VersionText(mine) +
                       ", the receiver's " + VersionText(static_cast<int>(hello.nccl))});
  }
  const DeviceUuid device = context_.device.uuid();
  if (hello.device == device) {
    return Refuse({0, ErrorCode::kUnsupported,
                   "NCCL takes one end for a GPU, and publisher and receiver are both on " + DeviceText(device)});
  }
  const ncclUniqueId id = MakeUniqueId(context_.library);
  epoch_.emplace(context_.library, context_.device, id, kPublisherRank);
  stand_by_ = Deadline::After(kTimeToStand);
  control_.Send(EncodeWelcome({kVersion, number_, id}));
}

void Receiver::TakeRequest(const Request& request) {
  try {
    replies_.Push(request, context_.book, kPieceBytes, context_.failpoints.load());
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kCorrupt) throw;
    Refuse({request.ticket, error.code(), error.what()});
  }
}

void Receiver::TakeGo(std::size_t pieces) {
  if (pieces > announced_.size() - pieces_going_)
    throw Error(ErrorCode::kCorrupt, "GO: more pieces than were announced");
  going_.push_back(pieces);
  pieces_going_ += pieces;
}

void Receiver::Refuse(const Refusal& refusal) {
  refused_ = true;
  replies_.Clear();
  control_.Send(EncodeRefusal(refusal));
}

bool Receiver::busy() const {
  return epoch_ && (!stands_ || !filling_.empty() || !going_.empty() || !sending_.empty());
}

bool Receiver::Progress() {
  if (!epoch_) return false;
  const bool settled = epoch_->communicator().Settled();
  stands_ = stands_ || settled;
  if (!stands_) return false;
  bool moved = Finish(settled);
  moved = Fill() || moved;
  moved = Announce() || moved;
  moved = Send(settled) || moved;
  if (sending_.Stalled() > kStalled)
    throw Error(ErrorCode::kDeadlineExceeded, "NCCL has moved nothing for ten seconds");
  return moved;
}

bool Receiver::Fill() {
  bool moved = false;
  while (!replies_.empty() && epoch_->has_spare()) {
    moved = true;
    Reply& reply = replies_.front();
    if (!context_.book.Begin(*reply.offered)) {
      Refuse({reply.ticket, ErrorCode::kNotFound, "the offer was removed"});
      break;
    }
    FillPiece(reply);
    if (reply.plan.done()) replies_.Pop();
  }
  return moved;
}

void Receiver::FillPiece(Reply& reply) {
  // From here on the offer is read, and the piece says so, whatever is thrown.
  Outgoing& piece = filling_.emplace_back();
  piece.offered = reply.offered;
  piece.slot = epoch_->TakeSpare();
  piece.piece = {reply.ticket, reply.plan.offset(), 0};
  bool reads_on = false;
  piece.piece.bytes = static_cast<std::uint32_t>(PackInto(*piece.slot, reply.plan, reads_on));
  piece.filled = epoch_->copies().Mark();
  if (!reads_on) context_.book.End(*std::exchange(piece.offered, nullptr));
}

// Fills the slot with what comes next, and returns how many bytes. `reads_on`: the device copies from the offer's
// memory by itself, until the stream of copies is through.
std::size_t Receiver::PackInto(Slot& slot, ReplyPlan& plan, bool& reads_on) {
  std::size_t bytes = 0;
  std::size_t copied = 0;  // of them; the rest waits in pinned memory
  const auto copy_up = [&] {
    if (copied < bytes) epoch_->copies().Copy(slot.device.data() + copied, slot.pinned.data() + copied, bytes - copied);
  };
  while (bytes < kPieceBytes) {
    const std::span<const std::byte> run = plan.TakeRun(kPieceBytes - bytes);
    if (run.empty()) break;
    if (context_.device.Reaches(run.data())) {
      copy_up();
      epoch_->copies().Copy(slot.device.data() + bytes, run.data(), run.size());
      copied = bytes + run.size();
      reads_on = true;
    } else {
      std::memcpy(epoch_->PinnedOf(slot) + bytes, run.data(), run.size());
    }
    bytes += run.size();
  }
  copy_up();
  return bytes;
}

bool Receiver::Announce() {
  bool moved = false;
  while (!filling_.empty() && epoch_->copies().Reached(filling_.front().filled)) {
    moved = true;
    Outgoing piece = std::move(filling_.front());
    filling_.pop_front();
    if (piece.offered != nullptr) context_.book.End(*std::exchange(piece.offered, nullptr));
    if (refused_) continue;
    control_.Send(EncodePiece(piece.piece));
    if (piece.piece.bytes == 0) {
      epoch_->GiveBack(std::move(piece.slot));  // that was all
    } else {
      announced_.push_back(std::move(piece));
    }
  }
  return moved;
}

// Only once the receiver waits for it: what NCCL sends keeps a part of the device busy until it is taken.
bool Receiver::Send(bool settled) {
  if (!settled || going_.empty() || !sending_.MayBegin()) return false;
  std::vector<Outgoing> group;
  for (std::size_t i = 0; i < going_.front(); ++i) {
    group.push_back(std::move(announced_.front()));
    announced_.pop_front();
  }
  pieces_going_ -= going_.front();
  going_.pop_front();
  sending_.Add(std::move(group), [&](std::span<const Transfer> transfers) {
    epoch_->communicator().Send(transfers, epoch_->transfers());
  });
  return true;
}

bool Receiver::Finish(bool settled) {
  std::vector<Outgoing> sent = sending_.TakeDone(settled, epoch_->transfers());
  for (Outgoing& piece : sent) epoch_->GiveBack(std::move(piece.slot));
  return !sent.empty();
}

}  // namespace layercast::nccl_channel
