// How long the ends of the nccl channel wait, and for what. FORMAT.md has these times, and what happens when they are
// over.
#pragma once

#include <chrono>

namespace layercast::nccl_channel {

// Value. Each comment says who waits for what. Tests have other times.
struct Patience {
  std::chrono::milliseconds to_gather{2000};  // a new receiver, for the rest of its fleet
  std::chrono::milliseconds to_regroup{250};  // a receiver that was in an epoch before, for the rest of its fleet
  std::chrono::milliseconds to_bring{5000};   // a new receiver, until the epoch's members have got something
  std::chrono::milliseconds to_answer{3000};  // the other members, for the answer of one that was called
  std::chrono::milliseconds to_stand{30000};  // a fleet, for its communicator: NCCL looks at the whole machine first
  std::chrono::milliseconds to_move{10000};   // for a GO, for NCCL, and (a receiver) for a call after a failure
  std::chrono::milliseconds to_share{50};     // a request, for the same request of the other members
  std::chrono::milliseconds to_finish{1000};  // when a member has gone, for what is under way to the others

  // Longer than the publisher's time, so that the publisher notices first.
  std::chrono::milliseconds receivers_to_move() const { return to_move + to_move / 2; }
};

}  // namespace layercast::nccl_channel
