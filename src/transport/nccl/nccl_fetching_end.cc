#include "src/transport/nccl/nccl_fetching_end.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "layercast/error.h"
#include "src/transport/device/device_tick.h"
#include "src/transport/poll_for.h"

namespace layercast::nccl_channel {
namespace {

constexpr std::chrono::seconds kNothingCame{10};  // of NCCL, though the publisher answers
constexpr std::chrono::milliseconds kForTheReason{200};

}  // namespace

NcclFetchingEnd::NcclFetchingEnd(const NcclParts& parts, const std::string& address, Deadline deadline)
    : parts_(parts), guard_("nccl: publisher at " + WithoutKey(address)) {
  try {
    guard_.Run([&] { Greet(ControlAddress::Parse("nccl", address), deadline); });
  } catch (...) {
    Close();
    throw;
  }
}

void NcclFetchingEnd::Greet(const ControlAddress& address, Deadline deadline) {
  control_ = ControlSocket::Connect(address, deadline);
  control_->Send(EncodeHello(
      {kVersion, address.key, static_cast<std::uint32_t>(parts_.library->version()), parts_.device->uuid()}));
  const Welcome welcome = AwaitWelcome(deadline);
  number_ = welcome.epoch;
  epoch_.emplace(*parts_.library, *parts_.device, welcome.id, kReceiverRank);
  AwaitCommunicator(deadline);
  liveness_.Heard();
}

Welcome NcclFetchingEnd::AwaitWelcome(Deadline deadline) {
  const std::vector<std::byte> answer = control_->AwaitAnswer(deadline);
  if (DecodeKind(answer) != Kind::kWelcome) TakeMessage(answer);  // throws what it refuses with
  return DecodeWelcome(answer);
}

void NcclFetchingEnd::AwaitCommunicator(Deadline deadline) {
  while (!epoch_->communicator().Settled()) {
    TakeMessages();
    if (deadline.Passed()) {
      throw Error(ErrorCode::kDeadlineExceeded,
                  "NCCL's communicator of epoch " + std::to_string(number_) + " was not set up in time");
    }
    Sleep(kDeviceTick);
  }
}

void NcclFetchingEnd::Submit(const ChunkRequest& request) {
  guard_.Run([&] {
    const auto [chunk, message] = requests_.Add(request);
    chunk.reached = !chunk.destination.empty() && parts_.device->Reaches(chunk.destination.data());
    TakeMessages();
    control_->Send(message);
  });
}

std::optional<ChunkCompletion> NcclFetchingEnd::Poll(Deadline deadline) {
  return guard_.Run([&]() -> std::optional<ChunkCompletion> {
    while (!requests_.has_done()) {
      if (Progress()) continue;
      if (requests_.empty() || deadline.Passed()) return std::nullopt;
      Wait(deadline);
    }
    return requests_.TakeDone();
  });
}

void NcclFetchingEnd::Close() noexcept {
  guard_.Close();
  epoch_.reset();  // before the memory that it works on
  control_.reset();
  announced_.clear();
  receiving_ = {};
  landing_.clear();
  requests_.Clear();
}

bool NcclFetchingEnd::Progress() {
  const bool heard = TakeMessages();
  try {
    return ProgressDevice() || heard;
  } catch (const Error& error) {
    ThrowReason(error);
  }
}

// The publisher may have said why on the control connection, or its end may be on the way.
void NcclFetchingEnd::ThrowReason(const Error& error) {
  const Deadline patience = Deadline::After(kForTheReason);
  while (!patience.Passed()) {
    TakeMessages();
    Sleep(patience.Remaining());
  }
  throw Error(error.code(), "epoch " + std::to_string(number_) + ": " + error.what());
}

bool NcclFetchingEnd::TakeMessages() {
  control_->Flush();
  bool heard = false;
  while (const auto message = control_->Receive()) {
    TakeMessage(*message);
    liveness_.Heard();
    heard = true;
  }
  return heard;
}

void NcclFetchingEnd::TakeMessage(std::span<const std::byte> message) {
  switch (DecodeKind(message)) {
    case Kind::kPiece: return TakePiece(DecodePiece(message));
    case Kind::kPong: return DecodeBare(message);
    case Kind::kRefused: {
      const Refusal refusal = DecodeRefusal(message);
      throw Error(refusal.code, "it refused: " + refusal.message);
    }
    default: throw Error(ErrorCode::kCorrupt, "an unknown kind of message");
  }
}

void NcclFetchingEnd::TakePiece(const Piece& piece) {
  Chunk* const chunk = requests_.Find(piece.ticket);
  // In order, none of nothing but that of an empty chunk, and never past the end.
  const bool asked_for = chunk != nullptr && piece.offset == chunk->announced &&
                         piece.bytes <= chunk->destination.size() - chunk->announced &&
                         (piece.bytes == 0) == chunk->destination.empty();
  if (!asked_for || announced_.size() == kPiecesUnderWay) {
    throw Error(ErrorCode::kCorrupt, "a piece that was not asked for: ticket " + std::to_string(piece.ticket) +
                                         ", offset " + std::to_string(piece.offset) + ", " +
                                         std::to_string(piece.bytes) + " bytes");
  }
  if (piece.bytes == 0) return CompleteIfWhole(*chunk);
  announced_.push_back({chunk, chunk->announced, piece.bytes, nullptr});
  chunk->announced += piece.bytes;
}

bool NcclFetchingEnd::ProgressDevice() {
  const bool settled = epoch_->communicator().Settled();
  bool moved = Land();
  moved = CopyOut(settled) || moved;
  moved = Receive(settled) || moved;
  if (receiving_.Stalled() > kNothingCame) {
    throw Error(ErrorCode::kUnavailable, "NCCL has brought nothing for ten seconds");
  }
  return moved;
}

bool NcclFetchingEnd::Receive(bool settled) {
  if (!settled || !receiving_.MayBegin()) return false;
  std::vector<Incoming> group;
  while (!announced_.empty() && epoch_->has_spare()) {
    announced_.front().slot = epoch_->TakeSpare();
    group.push_back(std::move(announced_.front()));
    announced_.pop_front();
  }
  if (group.empty()) return false;
  const std::size_t pieces = group.size();
  receiving_.Add(std::move(group), [&](std::span<const Transfer> transfers) {
    epoch_->communicator().Receive(transfers, epoch_->transfers());
  });
  control_->Send(EncodeGo(pieces));
  return true;
}

bool NcclFetchingEnd::CopyOut(bool settled) {
  std::vector<Incoming> received = receiving_.TakeDone(settled, epoch_->transfers());
  for (Incoming& piece : received) {
    std::byte* const to =
        piece.chunk->reached ? piece.chunk->destination.data() + piece.offset : epoch_->PinnedOf(*piece.slot);
    epoch_->copies().Copy(to, piece.slot->device.data(), piece.bytes);
    piece.copied = epoch_->copies().Mark();
    landing_.push_back(std::move(piece));
  }
  return !landing_.empty() && !received.empty();
}

bool NcclFetchingEnd::Land() {
  bool moved = false;
  while (!landing_.empty() && epoch_->copies().Reached(landing_.front().copied)) {
    moved = true;
    Incoming piece = std::move(landing_.front());
    landing_.pop_front();
    Chunk& chunk = *piece.chunk;
    if (!chunk.reached) {
      std::memcpy(chunk.destination.data() + piece.offset, piece.slot->pinned.data(), piece.bytes);
    }
    epoch_->GiveBack(std::move(piece.slot));
    chunk.landed += piece.bytes;
    CompleteIfWhole(chunk);
  }
  return moved;
}

void NcclFetchingEnd::CompleteIfWhole(Chunk& chunk) {
  if (chunk.landed != chunk.destination.size()) return;
  requests_.Complete(chunk);
}

void NcclFetchingEnd::Wait(Deadline deadline) {
  // The publisher's part of what NCCL is doing is done by its service: it may be asked, and must answer, all the time.
  if (liveness_.ShouldAsk(requests_.size())) control_->Send(EncodePing());
  if (busy()) return Sleep(kDeviceTick);
  Sleep(deadline.AtMost(Liveness::kAskAfter / 2).Remaining());
}

void NcclFetchingEnd::Sleep(std::chrono::microseconds time) {
  pollfd item = control_->Events();
  PollFor({&item, 1}, time);
}

}  // namespace layercast::nccl_channel
