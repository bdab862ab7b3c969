#include "src/transport/ucx/one_sided/ucx_reading_end.h"

#include <chrono>
#include <utility>

#include "layercast/error.h"

namespace layercast::ucx_channel {
namespace {

constexpr std::size_t kReadsUnderWay = 64;
constexpr int kReadsAtOnce = 64;                              // begun between two looks at what has come
constexpr std::uint64_t kReadBytes = std::uint64_t{4} << 20;  // the most that one read brings
constexpr std::chrono::seconds kStuckAfter{10};               // UCX gives a peer up after 7 tries of a second

}  // namespace

UcxReadingEnd::UcxReadingEnd(const std::string& address, Greeted greeted, std::unique_ptr<RemoteReads> reads,
                             Deadline deadline)
    : ControlledFetching(PeerAt(address)), reads_(std::move(reads)) {
  control_ = std::move(greeted.control);
  Open([&] { ReadToken(greeted.welcome, deadline); });
}

// Reads the publisher's token, which shows that the lanes work and bring the bytes that were meant.
void UcxReadingEnd::ReadToken(const Welcome& welcome, Deadline deadline) {
  reads_->Connect(welcome.address);
  lane_ = reads_->lane() + ", one-sided";
  token_key_ = reads_->Open(welcome.token_place.key);
  bool landed = reads_->Read(*token_key_, welcome.token_place.address, seen_, 0);
  while (!landed) {
    const bool moved = reads_->Progress();
    landed = reads_->TakeLanded().has_value();
    ExpectThere();
    if (!landed && deadline.Passed()) {
      throw Error(ErrorCode::kDeadlineExceeded, "nothing came by UCX's lanes (" + lane_ + ") in time");
    }
    if (!landed && !moved) Sleep(deadline.AtMost(std::chrono::seconds(1)));
  }
  if (seen_ != welcome.token) throw Error(ErrorCode::kCorrupt, "what was read is not the publisher's token");
  token_key_.reset();
  control_->Send(Encode(Read{0}));
}

void UcxReadingEnd::Prepare(Chunk& chunk, const ChunkRequest& request, const std::vector<std::byte>& /*message*/) {
  chunk.plan = ReadPlan(request.regions);
}

void UcxReadingEnd::End() noexcept {
  if (reads_ != nullptr) reads_->Abandon();
  token_key_.reset();
  to_read_.clear();
  whole_.clear();
  requests_.Clear();  // with the keys, which must go before reads_
  reads_.reset();
  control_.reset();
}

bool UcxReadingEnd::Progress() {
  bool moved = reads_->Progress();
  moved = TakeLanded() || moved;
  ExpectThere();
  moved = ReadMore() || moved;
  return CompleteWhole() || moved;
}

void UcxReadingEnd::ExpectThere() {
  TakeMessages();
  ExpectReadable();
}

void UcxReadingEnd::TakeMessage(std::span<const std::byte> message) {
  const Kind kind = DecodeKind(message);
  if (kind == kGranted) {
    TakeGranted(Decode<Granted>(message));
  } else if (kind == Kind::kPong && pongs_owed_ != 0) {
    Decode<Bare>(message);
    --pongs_owed_;
  } else {
    ThrowRefused(message);
  }
}

void UcxReadingEnd::TakeGranted(Granted granted) {
  Chunk* const chunk = requests_.Find(granted.ticket);
  if (chunk == nullptr || chunk->granted || (granted.tensors.empty() && !granted.last)) {
    throw Error(ErrorCode::kCorrupt, "GRANTED that was not asked for: ticket " + std::to_string(granted.ticket));
  }
  for (GrantedTensor& each : granted.tensors) {
    if (!chunk->plan.tensors().contains(each.tensor) || chunk->places.contains(each.tensor)) {
      throw Error(ErrorCode::kCorrupt, "GRANTED of a tensor that was not asked for: " + std::to_string(each.tensor));
    }
    chunk->places.emplace(each.tensor, Chunk::Place{std::move(each.place), nullptr});
  }
  if (!granted.last) return;
  if (chunk->places.size() != chunk->plan.tensors().size()) {
    throw Error(ErrorCode::kCorrupt, "GRANTED is the last one, but not all tensors have come");
  }
  chunk->granted = true;
  if (chunk->whole()) {
    whole_.push_back(chunk);
  } else {
    to_read_.push_back(chunk);
  }
}

bool UcxReadingEnd::TakeLanded() {
  bool any = false;
  while (const auto ticket = reads_->TakeLanded()) {
    Chunk& chunk = *requests_.Find(*ticket);  // a chunk is under way until all its reads have landed
    --chunk.reading;
    --reading_;
    if (chunk.whole()) whole_.push_back(&chunk);
    any = true;
  }
  if (any) waited_ = {};
  return any;
}

bool UcxReadingEnd::ReadMore() {
  bool any = false;
  for (int i = 0; i < kReadsAtOnce && !to_read_.empty() && reading_ < kReadsUnderWay; ++i) {
    Chunk& chunk = *to_read_.front();
    const bool landed = ReadNext(chunk);
    if (chunk.plan.done()) to_read_.pop_front();
    ExpectReadable();
    any = any || landed;
    if (landed && chunk.whole()) whole_.push_back(&chunk);
  }
  return any;
}

bool UcxReadingEnd::ReadNext(Chunk& chunk) {
  const ReadPlan::Run run = chunk.plan.Take(kReadBytes);
  Chunk::Place& place = chunk.places.at(run.tensor);
  if (place.key == nullptr) place.key = reads_->Open(place.granted.key);
  std::uint64_t address = 0;
  if (__builtin_add_overflow(place.granted.address, run.offset, &address)) {
    throw Error(ErrorCode::kCorrupt, "GRANTED of a tensor that leaves the memory that there can be");
  }
  if (reading_ == 0) waited_ = {};
  if (reads_->Read(*place.key, address, chunk.destination.subspan(run.to, run.bytes), chunk.ticket)) return true;
  ++chunk.reading;
  ++reading_;
  return false;
}

void UcxReadingEnd::ExpectReadable() {
  if (!reads_->failure().empty()) ThrowLost(*control_, reads_->failure());
}

bool UcxReadingEnd::CompleteWhole() {
  if (whole_.empty()) return false;
  TakeMessages();  // throws if the publisher has taken back what it granted
  for (Chunk* const chunk : std::exchange(whole_, {})) {
    control_->Send(Encode(Read{chunk->ticket}));
    requests_.Complete(*chunk);
  }
  liveness_.Heard();
  return true;
}

void UcxReadingEnd::Wait(Deadline deadline) {
  if (reading_ != 0 && waited_ > kStuckAfter) {
    throw Error(ErrorCode::kUnavailable, "no read has come for " + std::to_string(kStuckAfter.count()) + " seconds");
  }
  ControlledFetching::Wait(deadline);
}

void UcxReadingEnd::Ask() {
  ControlledFetching::Ask();
  ++pongs_owed_;
}

void UcxReadingEnd::Sleep(Deadline deadline) {
  if (!reads_->Arm()) return;
  const auto began = Deadline::Clock::now();
  SleepFor(deadline.Remaining(), reads_->fd());
  waited_ += Deadline::Clock::now() - began;
}

}  // namespace layercast::ucx_channel
