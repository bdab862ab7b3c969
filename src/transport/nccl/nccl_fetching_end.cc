#include "src/transport/nccl/nccl_fetching_end.h"

#include <algorithm>
#include <utility>

#include "layercast/error.h"
#include "src/device/device_tick.h"

namespace layercast::nccl_channel {

NcclFetchingEnd::NcclFetchingEnd(const NcclParts& parts, const std::string& address, Deadline deadline)
    : ControlledFetching("nccl: publisher at " + WithoutKey(address)),
      parts_(parts),
      slots_(*parts_.device, parts_.piece_bytes) {
  slots_.Allow(kPiecesUnderWay);
  Open([&] { Greet(ControlAddress::Parse("nccl", address), deadline); });
}

void NcclFetchingEnd::Greet(const ControlAddress& address, Deadline deadline) {
  control_ = ControlSocket::Connect(address, deadline);
  control_->Send(Encode(
      Hello{kVersion, address.key, static_cast<std::uint32_t>(parts_.library->version()), parts_.device->uuid()}));
  const std::vector<std::byte> answer = control_->AwaitAnswer(deadline);
  if (KindOf(answer) == NcclKind::kRefused) ThrowRefusal(answer);
  Decode<Welcome>(answer);
  AwaitStanding(stood_, deadline, [this] {
    return "NCCL's communicator of epoch " + std::to_string(number_) + " was not set up in time";
  });
  liveness_.Heard();
}

void NcclFetchingEnd::Prepare(Chunk& chunk, const ChunkRequest& /*request*/, const std::vector<std::byte>& message) {
  chunk.order = ++asked_;
  chunk.reached = !chunk.destination.empty() && parts_.device->Reaches(chunk.destination.data());
  chunk.message = message;
  if (called_by_) called_by_ = Deadline::After(parts_.patience.to_move);
}

void NcclFetchingEnd::End() noexcept {
  control_.reset();  // first, so that the publisher knows why NCCL fails for others
  intake_.reset();
  requests_.Clear();
}

bool NcclFetchingEnd::Progress() {
  bool moved = false;
  try {
    moved = TakeMessages();
  } catch (const Error& error) {
    if (failure_ && error.code() == ErrorCode::kUnavailable) throw Error(*failure_);  // the cause
    throw;
  }
  if (called_by_ && called_by_->Passed()) throw Error(*failure_);
  return ProgressDevice() || moved;
}

bool NcclFetchingEnd::ProgressDevice() {
  if (!intake_) return false;
  bool moved = false;
  try {
    moved = intake_->Progress([this] { control_->Send(Encode(BareOf(NcclKind::kGo))); },
                              [this](Chunk& chunk) { Complete(chunk); });
  } catch (const Error& error) {
    Fail(error);
    return true;
  }
  if (!stands_ && intake_->stands()) {
    stood_ = stands_ = true;
    control_->Send(Encode(OfEpoch{NcclKind::kStands, number_}));
  }
  return moved;
}

void NcclFetchingEnd::Fail(const Error& error) {
  failure_.emplace(error.code(), "epoch " + std::to_string(number_) + ": " + error.what());
  called_by_ = Deadline::After(parts_.patience.to_move);
  EndEpoch();
  control_->Send(Encode(OfEpoch{NcclKind::kFailed, number_}));
}

void NcclFetchingEnd::TakeMessage(std::span<const std::byte> message) {
  switch (KindOf(message)) {
    case NcclKind::kCall: return TakeCall(Decode<OfEpoch>(message).epoch);
    case NcclKind::kEpoch: return TakeEpoch(Decode<Membership>(message, "EPOCH"));
    case NcclKind::kPieces: return TakePieces(Decode<PieceGroup>(message));
    case NcclKind::kPong: Decode<Bare>(message); return;
    case NcclKind::kRefused: ThrowRefusal(message);
    default: throw Error(ErrorCode::kCorrupt, "an unknown kind of message");
  }
}

void NcclFetchingEnd::TakeCall(std::uint64_t epoch) {
  if (epoch < number_ || epoch == 0) {
    throw Error(ErrorCode::kCorrupt, "a call to epoch " + std::to_string(epoch) + " after " + std::to_string(number_));
  }
  const bool is_new = std::exchange(number_, epoch) != epoch;
  if (is_new) EndEpoch();
  called_by_.reset();
  control_->Send(Encode(Ready{epoch, is_new ? static_cast<std::uint32_t>(requests_.size()) : 0}));
  if (is_new) AskAgain();
}

void NcclFetchingEnd::TakeEpoch(const Membership& membership) {
  if (membership.epoch != number_ || number_ == 0 || intake_) {
    throw Error(ErrorCode::kCorrupt, "epoch " + std::to_string(membership.epoch) + ", to which it did not call");
  }
  try {
    intake_.emplace(parts_, slots_, membership);
    failure_.reset();
  } catch (const Error& error) {
    Fail(error);
  }
}

void NcclFetchingEnd::EndEpoch() {
  intake_.reset();
  stands_ = false;
}

// Repeats the requests in the order in which they were first made, so that the members of a fleet ask for the same
// again.
void NcclFetchingEnd::AskAgain() {
  std::vector<Chunk*> chunks;
  requests_.ForEach([&](Chunk& chunk) { chunks.push_back(&chunk); });
  std::ranges::sort(chunks, {}, &Chunk::order);
  for (Chunk* const chunk : chunks) {
    chunk->announced = chunk->landed = 0;
    control_->Send(chunk->message);
  }
}

void NcclFetchingEnd::TakePieces(const PieceGroup& group) {
  if (failure_) return;  // these are of an epoch that has ended here
  if (!intake_) throw Error(ErrorCode::kCorrupt, "pieces, outside of an epoch");
  std::vector<Intake::Incoming> incoming;
  for (const Piece& piece : group.pieces) {
    Chunk& chunk = ExpectAskedFor(piece);
    if (piece.bytes == 0) return Complete(chunk);
    incoming.push_back({&chunk, chunk.announced, piece.bytes});
    chunk.announced += piece.bytes;
  }
  intake_->Announce(group.broadcast, std::move(incoming));
}

// The chunk of a piece that was announced. Throws kCorrupt unless the piece comes in order, stays inside the chunk, has
// bytes (unless the chunk is empty), and there is memory for it.
Chunk& NcclFetchingEnd::ExpectAskedFor(const Piece& piece) {
  Chunk* const chunk = requests_.Find(piece.ticket);
  const bool asked_for = chunk != nullptr && piece.offset == chunk->announced &&
                         piece.bytes <= chunk->destination.size() - chunk->announced &&
                         piece.bytes <= slots_.slot_bytes() && (piece.bytes == 0) == chunk->destination.empty();
  if (asked_for && intake_->num_announced() < kPiecesUnderWay) return *chunk;
  throw Error(ErrorCode::kCorrupt, "a piece that was not asked for: ticket " + std::to_string(piece.ticket) +
                                       ", offset " + std::to_string(piece.offset) + ", " + std::to_string(piece.bytes) +
                                       " bytes");
}

void NcclFetchingEnd::Complete(Chunk& chunk) {
  control_->Send(Encode(BareOf(NcclKind::kDone)));
  requests_.Complete(chunk);
}

// The publisher is asked whether it is there even while NCCL is at work here: its part of that is done by its service
// thread, which must be able to answer all the time.
void NcclFetchingEnd::Sleep(Deadline deadline) {
  SleepFor(intake_ && intake_->busy() ? kDeviceTick : deadline.Remaining());
}

}  // namespace layercast::nccl_channel
