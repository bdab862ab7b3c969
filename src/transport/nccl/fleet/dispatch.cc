#include "src/transport/nccl/fleet/dispatch.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "layercast/error.h"

namespace layercast::nccl_channel {
namespace {

std::vector<ReplyQueue*> QueuesOf(const std::vector<Receiver*>& members) {
  std::vector<ReplyQueue*> queues;
  for (Receiver* const member : members) queues.push_back(&member->replies());
  return queues;
}

// Skips `bytes` of a plan, which were taken from the plan of another reply to the same request.
void Skip(ReplyPlan& plan, std::size_t bytes) {
  do bytes -= plan.TakeView(std::max<std::size_t>(bytes, 1)).num_bytes();
  while (bytes > 0);
}

template <typename Lane>
bool Overlap(const std::vector<Lane*>& a, const std::vector<Lane*>& b) {
  return std::ranges::find_first_of(a, b) != a.end();
}

}  // namespace

Dispatch::Dispatch(const DispatchParts& parts, const Membership& membership, const std::vector<Receiver*>& members)
    : parts_(parts), sharing_(QueuesOf(members), parts.patience.to_share) {
  for (Receiver* const member : members) lanes_.push_back({member, static_cast<int>(lanes_.size()) + 1});
  epoch_.emplace(parts_.library, parts_.device, membership);
}

Dispatch::~Dispatch() {
  epoch_.reset();  // while the offers that it reads are still in use
}

bool Dispatch::Stands() {
  stands_ = epoch_->communicator().Settled() || stands_;
  return stands_;
}

bool Dispatch::Progress() {
  const bool settled = epoch_->communicator().Settled();
  bool moved = Finish(settled);
  if (!over_) {
    TakeGos();
    moved = Fill() || moved;
    moved = Announce() || moved;
    moved = Launch(settled) || moved;
  }
  if (sending_.Stalled() > parts_.patience.to_move) {
    throw Error(ErrorCode::kDeadlineExceeded,
                "NCCL has moved nothing for " + std::to_string(parts_.patience.to_move.count()) + " ms");
  }
  return moved;
}

void Dispatch::Forget(const Receiver& receiver) {
  over_ = true;
  for (Lane& lane : lanes_) {
    if (lane.receiver == &receiver) lane.receiver = nullptr;
  }
}

bool Dispatch::all_told() const {
  return filling_.empty() && announced_.empty() && std::ranges::all_of(lanes_, [](const Lane& lane) {
           return lane.receiver == nullptr || lane.receiver->replies().empty();
         });
}

// Looks only at the oldest round: a member that has not said GO to a later one may not be able to before that.
std::vector<Receiver*> Dispatch::Late() {
  const auto now = Deadline::Clock::now();
  const std::uint64_t oldest = announced_.empty() || !sending_.empty() ? 0 : announced_.front().number;
  if (std::exchange(oldest_, oldest) != oldest) oldest_since_ = now;
  std::vector<Receiver*> late;
  if (oldest == 0 || now - oldest_since_ < parts_.patience.to_move) return late;
  for (const Lane* const lane : announced_.front().to) {
    if (!lane->to_go.empty() && lane->to_go.front()->number == oldest) late.push_back(lane->receiver);
  }
  return late;
}

bool Dispatch::Fill() {
  bool moved = false;
  while (true) {
    sharing_.Decide();
    if (!(sharing_.together() ? FillTogether() : FillAlone())) return moved;
    moved = true;
  }
}

bool Dispatch::MayFill(const Lane& lane) const {
  return !lane.receiver->replies().empty() && lane.under_way < kPiecesUnderWay && parts_.slots.num_spare() > 0;
}

bool Dispatch::FillTogether() {
  if (!std::ranges::all_of(lanes_, [this](const Lane& lane) { return MayFill(lane); })) return false;
  std::vector<Lane*> to;
  for (Lane& lane : lanes_) to.push_back(&lane);
  return FillPiece(std::move(to), true);
}

// Fills a piece for each member whose next request goes to it alone.
bool Dispatch::FillAlone() {
  bool moved = false;
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    if (sharing_.alone(i) && MayFill(lanes_[i])) moved = FillPiece({&lanes_[i]}, false) || moved;
  }
  return moved;
}

// Fills the next piece of the request that is at the front for all of `to`. False: the offer was removed, and they are
// refused.
bool Dispatch::FillPiece(std::vector<Lane*> to, bool broadcast) {
  Reply& reply = to.front()->receiver->replies().front();
  OfferUse use = parts_.book.Begin(reply.offered);
  if (use == nullptr) {
    for (const Lane* const lane : to) {
      const std::uint64_t ticket = lane->receiver->replies().front().ticket;
      lane->receiver->Refuse({ticket, ErrorCode::kNotFound, "the offer was removed"});
    }
    return false;
  }
  // From here on the offer is read, and the piece in filling_ says so even if something below throws.
  Outgoing& piece = filling_.emplace_back().pieces.emplace_back();
  piece.offered = std::move(use);
  piece.slot = parts_.slots.Take();
  piece.offset = reply.plan.offset();
  bool reads_on = false;
  piece.bytes = PackInto(*piece.slot, reply.plan, reads_on);
  piece.filled = epoch_->copies().Mark();
  if (!reads_on) piece.offered = OfferUse();
  const bool last = reply.plan.done();
  for (Lane* const lane : to) {
    ++lane->under_way;
    ReplyQueue& replies = lane->receiver->replies();
    piece.tickets.push_back(replies.front().ticket);
    if (lane != to.front()) Skip(replies.front().plan, piece.bytes);
  }
  if (last) {
    for (Lane* const lane : to) lane->receiver->replies().Pop();
    broadcast ? sharing_.TookTogether() : sharing_.TookAlone(static_cast<std::size_t>(to.front() - lanes_.data()));
  }
  filling_.back().to = std::move(to);
  filling_.back().broadcast = broadcast;
  filling_.back().number = ++rounds_;
  return true;
}

// Fills the slot with what comes next, and returns how many bytes that is. Sets `reads_on` if the device copies from
// the offer's memory by itself, which then is read until the stream of copies has got there.
std::size_t Dispatch::PackInto(Slot& slot, ReplyPlan& plan, bool& reads_on) {
  std::size_t bytes = 0;
  std::size_t copied = 0;  // how many of them have been queued; the rest waits in pinned memory
  const auto copy_up = [&] {
    if (copied < bytes) epoch_->copies().Copy(slot.device.data() + copied, slot.pinned.data() + copied, bytes - copied);
  };
  while (bytes < parts_.slots.slot_bytes()) {
    const RegionView view = plan.TakeView(parts_.slots.slot_bytes() - bytes);
    if (view.num_bytes() == 0) break;
    if (parts_.device.Reaches(view.base)) {  // then it reaches the whole tensor
      copy_up();
      epoch_->copies().CopyRows(slot.device.data() + bytes, view);
      copied = bytes + view.num_bytes();
      reads_on = true;
    } else {
      Pack(view, parts_.slots.PinnedOf(slot) + bytes);
    }
    bytes += view.num_bytes();
  }
  copy_up();
  return bytes;
}

bool Dispatch::Announce() {
  const std::size_t before = announced_.size();
  bool moved = false;
  while (!filling_.empty() && epoch_->copies().Reached(filling_.front().pieces.front().filled)) {
    moved = true;
    Round round = std::move(filling_.front());
    filling_.pop_front();
    round.pieces.front().offered = OfferUse();
    if (round.pieces.front().bytes == 0) {
      AnnounceNothing(round);
    } else {
      AddToAnnounced(std::move(round), before);
    }
  }
  for (auto round = std::next(announced_.begin(), static_cast<std::ptrdiff_t>(before)); round != announced_.end();
       ++round) {
    Tell(*round);
  }
  return moved;
}

// Adds the piece to the last round for the same members, if that is not full and no later round is for one of them;
// otherwise appends it as a round of its own. The first `told` rounds have been announced, and take no more pieces.
void Dispatch::AddToAnnounced(Round round, std::size_t told) {
  std::size_t open = announced_.size() - told;
  for (auto other = announced_.rbegin(); open > 0; ++other, --open) {
    if (!Overlap(other->to, round.to)) continue;
    if (other->to != round.to || other->broadcast != round.broadcast || other->pieces.size() == kPiecesInGroup) break;
    other->pieces.push_back(std::move(round.pieces.front()));
    return;
  }
  announced_.push_back(std::move(round));
}

// Announces a piece of no bytes, which does not go by NCCL and needs no GO.
void Dispatch::AnnounceNothing(const Round& round) {
  const Outgoing& piece = round.pieces.front();
  for (std::size_t i = 0; i < round.to.size(); ++i) {
    --round.to[i]->under_way;
    round.to[i]->receiver->Announce({false, {{piece.tickets[i], piece.offset, 0}}});
  }
}

void Dispatch::Tell(Round& round) {
  for (std::size_t i = 0; i < round.to.size(); ++i) {
    PieceGroup group{round.broadcast, {}};
    for (const Outgoing& piece : round.pieces) {
      group.pieces.push_back({piece.tickets[i], piece.offset, static_cast<std::uint32_t>(piece.bytes)});
    }
    round.to[i]->receiver->Announce(group);
    round.to[i]->to_go.push_back(&round);
  }
}

void Dispatch::TakeGos() {
  for (Lane& lane : lanes_) {
    while (!lane.to_go.empty() && lane.receiver->TakeGo()) {
      ++lane.to_go.front()->gos;
      lane.to_go.pop_front();
    }
  }
}

// Sends a round only once all members that it is for wait for it, because what NCCL sends keeps a part of the device
// busy until it is taken.
bool Dispatch::Launch(bool settled) {
  if (!settled || !sending_.MayBegin()) return false;
  std::vector<Round> rounds = TakeLaunchable();
  if (rounds.empty()) return false;
  std::vector<Transfer> transfers;
  for (const Round& round : rounds) {
    for (const Outgoing& piece : round.pieces) {
      transfers.push_back({piece.slot->device.data(), piece.bytes, round.to.front()->rank});
    }
  }
  Communicator& communicator = epoch_->communicator();
  rounds.front().broadcast ? communicator.Broadcast(transfers, epoch_->transfers())
                           : communicator.Send(transfers, epoch_->transfers());
  sending_.Add(std::move(rounds));
  return true;
}

// Takes one broadcast round, or all rounds for single members, that are ready. The rounds of each member are taken in
// the order in which they were announced to it.
std::vector<Dispatch::Round> Dispatch::TakeLaunchable() {
  std::vector<Round> rounds;
  std::vector<Lane*> before;  // the members for whom an earlier round stays
  for (auto round = announced_.begin(); round != announced_.end();) {
    const bool ready = round->gos == round->to.size() && !Overlap(round->to, before);
    const bool fits = rounds.empty() || !(rounds.front().broadcast || round->broadcast);
    if (ready && fits) {
      rounds.push_back(std::move(*round));
      round = announced_.erase(round);
    } else {
      before.insert(before.end(), round->to.begin(), round->to.end());
      ++round;
    }
  }
  return rounds;
}

bool Dispatch::Finish(bool settled) {
  const std::vector<Round> sent = sending_.TakeDone(settled, epoch_->transfers());
  for (const Round& round : sent) {
    for (Lane* const lane : round.to) lane->under_way -= round.pieces.size();
  }
  return !sent.empty();
}

}  // namespace layercast::nccl_channel
