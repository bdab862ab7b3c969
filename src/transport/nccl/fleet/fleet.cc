#include "src/transport/nccl/fleet/fleet.h"

#include <algorithm>
#include <string>

#include "src/base/log.h"

namespace layercast::nccl_channel {
namespace {

bool Has(const std::vector<Receiver*>& receivers, const Receiver& receiver) {
  return std::ranges::find(receivers, &receiver) != receivers.end();
}

bool AnyWants(const std::vector<Receiver*>& receivers) {
  return std::ranges::any_of(receivers, [](const Receiver* receiver) { return receiver->wants(); });
}

}  // namespace

bool Fleet::HasPlaceFor(const Receiver& receiver) const {
  return members_.size() < size_ &&
         std::ranges::none_of(members_, [&](const Receiver* member) { return member->device() == receiver.device(); });
}

void Fleet::Leave(const Receiver& receiver) {
  std::erase(apart_, &receiver);
  std::erase(members_, &receiver);
  std::erase_if(owed_, [&](const Owed& owed) { return owed.receiver == &receiver; });
  if (std::erase(crew_, &receiver) == 0) return;
  lost_ = true;
  if (!dispatch_) return;
  left_unfinished_ = left_unfinished_ || receiver.wants();
  if (!dispatch_->over()) finish_by_ = Deadline::After(context_.patience.to_finish);
  dispatch_->Forget(receiver);
}

bool Fleet::Progress() {
  const std::vector<Receiver*> members = members_;
  for (const Receiver* const member : members) {
    if (member->refused()) Leave(*member);
  }
  try {
    return Step();
  } catch (const Error& error) {
    Suspect(error);
    return true;
  }
}

bool Fleet::Step() {
  if (calling_) return Gather();
  if (dispatch_ && dispatch_->over()) return LetFinish();
  if (dispatch_ && !dispatch_->stands()) return SetUp();
  if (Due()) {
    Call();
    return true;
  }
  return dispatch_ && Attend();
}

bool Fleet::IsOutside(const Receiver& receiver) const { return receiver.wants() && !Has(crew_, receiver); }

bool Fleet::MayAdmit() const {
  return crew_.empty() || owed_until_.Passed() || std::ranges::none_of(owed_, [](const Owed& owed) {
           return owed.receiver->wants() && owed.receiver->done() == owed.done;
         });
}

bool Fleet::Due() const {
  const bool admits = MayAdmit();
  const auto now = Deadline::Clock::now();
  const Patience& patience = context_.patience;
  bool outside = false;
  for (const Receiver* const member : members_) {
    if (!IsOutside(*member) || (member->is_new() && !admits)) continue;
    if (now - member->wants_since() >= (member->is_new() ? patience.to_gather : patience.to_regroup)) return true;
    outside = true;
  }
  const bool more_may_come = members_.size() < size_ && std::ranges::any_of(members_, &Receiver::is_new);
  return outside && !more_may_come && std::ranges::all_of(members_, &Receiver::wants);
}

void Fleet::Call() {
  const bool admits = MayAdmit();
  const std::vector<Receiver*> before = crew_;
  End();
  std::ranges::copy_if(members_, std::back_inserter(crew_), [&](const Receiver* member) {
    return member->wants() && (admits || !member->is_new() || Has(before, *member));
  });
  if (crew_.empty()) return;  // members outside are called next
  if (admits) OweEach(before);
  number_ = ++context_.epochs;
  for (Receiver* const member : crew_) member->Call(number_);
  calling_ = true;
  answer_by_ = Deadline::After(context_.patience.to_answer);
}

void Fleet::OweEach(const std::vector<Receiver*>& before) {
  owed_.clear();
  for (const Receiver* const member : crew_) {
    if (Has(before, *member) && !member->is_new()) owed_.push_back({member, member->done()});
  }
  owed_until_ = Deadline::After(context_.patience.to_bring);
}

void Fleet::End() {
  dispatch_.reset();
  crew_.clear();
  calling_ = lost_ = left_unfinished_ = false;
}

std::vector<Receiver*> Fleet::Silent() const {
  std::vector<Receiver*> silent;
  std::ranges::copy_if(crew_, std::back_inserter(silent), [](const Receiver* member) { return !member->answered(); });
  return silent;
}

// Leaves out members that got all they wanted before they heard of the call, and puts apart those that stay silent, so
// that others do not wait for them.
bool Fleet::Gather() {
  std::erase_if(crew_, [](const Receiver* member) { return !member->wants(); });
  const std::vector<Receiver*> silent = Silent();
  if (silent.empty()) {
    Begin();
    return true;
  }
  const bool others_wait = silent.size() < crew_.size() ||
                           std::ranges::any_of(members_, [this](const Receiver* member) { return IsOutside(*member); });
  if (!others_wait || !answer_by_.Passed()) return false;
  for (Receiver* const member : silent) PutApart(*member, "did not answer the call");
  return true;
}

void Fleet::Begin() {
  calling_ = false;
  const std::optional<Error> suspected = std::exchange(suspected_, std::nullopt);
  if (crew_.empty()) return;
  if (suspected && !lost_) return BreakUp(*suspected);
  Membership membership{number_, static_cast<int>(crew_.size()) + 1, kPublisherRank, MakeUniqueId(context_.library)};
  slots_.Allow(kPiecesUnderWay * crew_.size());
  dispatch_.emplace(DispatchParts{context_.library, context_.device, context_.book, context_.patience, slots_},
                    membership, crew_);
  for (Receiver* const member : crew_) {
    ++membership.rank;
    member->Admit(membership);
  }
  stand_by_ = Deadline::After(context_.patience.to_stand);
  answer_by_ = Deadline::After(context_.patience.to_answer);
}

// A frozen member would keep the communicator from standing for all. So the members are called again now and then, and
// those that do not answer are put apart.
bool Fleet::SetUp() {
  if (dispatch_->Stands()) return true;
  ExpectNoneFailed();
  if (stand_by_.Passed()) {
    throw Error(ErrorCode::kDeadlineExceeded,
                "the communicator of epoch " + std::to_string(number_) + " was not set up in time");
  }
  if (crew_.size() == 1 || !answer_by_.Passed()) return false;
  const std::vector<Receiver*> silent = Silent();
  for (Receiver* const member : silent) PutApart(*member, "was silent while the communicator was set up");
  if (!silent.empty()) return true;
  for (Receiver* const member : crew_) member->Call(number_);
  answer_by_ = Deadline::After(context_.patience.to_answer);
  return false;
}

bool Fleet::Attend() {
  ExpectNoneFailed();
  const bool moved = dispatch_->Progress();
  if (crew_.size() == 1) return moved;
  for (Receiver* const member : dispatch_->Late()) PutApart(*member, "took nothing for too long");
  return moved;
}

// A member has gone. If it had all that it wanted, the others have that too, or it is on its way to them and may
// finish.
bool Fleet::LetFinish() {
  if (!AnyWants(crew_)) {
    End();
    return true;
  }
  const bool may_finish = dispatch_->stands() && !left_unfinished_ && dispatch_->all_told() && !finish_by_.Passed();
  if (may_finish) {
    ExpectNoneFailed();
    return dispatch_->Progress();
  }
  Call();
  return true;
}

void Fleet::ExpectNoneFailed() const {
  for (const Receiver* const member : crew_) {
    if (!member->failed()) continue;
    throw Error(ErrorCode::kUnavailable, "NCCL has failed at the end of receiver " + std::to_string(member->number()));
  }
}

void Fleet::Suspect(const Error& error) {
  log::warn("nccl: epoch {} ends: {}", number_, error.what());
  const bool explained = dispatch_ && dispatch_->over();  // a member has gone
  Call();
  if (calling_ && !explained) suspected_ = error;
}

void Fleet::BreakUp(const Error& error) {
  if (crew_.size() == 1) {
    Receiver& only = *crew_.front();
    only.Cut(error);
    return Leave(only);
  }
  const std::vector<Receiver*> crew = crew_;
  for (Receiver* const member : crew) PutApart(*member, "NCCL fails, and nobody is lost");
}

void Fleet::PutApart(Receiver& receiver, const char* why) {
  log::warn("nccl: receiver {} goes on by itself: {}", receiver.number(), why);
  Leave(receiver);
  receiver.standing().PutApart();
  apart_.push_back(&receiver);
}

Attention Fleet::attention() const {
  if (dispatch_ && dispatch_->busy()) return Attention::kDevice;
  const bool waits = dispatch_ && crew_.size() > 1 && dispatch_->waits();
  const bool closes = dispatch_ && dispatch_->over();
  const bool gathers =
      calling_ ? members_.size() > 1
               : std::ranges::any_of(members_, [this](const Receiver* member) { return IsOutside(*member); });
  return waits || closes || gathers ? Attention::kClock : Attention::kNone;
}

}  // namespace layercast::nccl_channel
