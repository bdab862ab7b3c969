// How long the ends of the nccl channel wait, and for what. FORMAT.md has them, and what comes after.
#pragma once

#include <chrono>

namespace layercast::nccl_channel {

// Value. Tests have less of it, or more.
struct Patience {
  std::chrono::milliseconds to_gather{2000};  // a receiver that is new, for the rest of its fleet
  std::chrono::milliseconds to_regroup{250};  // one that was in an epoch before, for the rest of its fleet
  std::chrono::milliseconds to_bring{5000};   // whoever is new, until this epoch has brought something
  std::chrono::milliseconds to_answer{3000};  // the others, for a member that was called
  std::chrono::milliseconds to_stand{30000};  // for a communicator: NCCL looks at the whole machine first
  std::chrono::milliseconds to_move{10000};   // for a GO, and for what NCCL was told to move
  std::chrono::milliseconds to_share{50};     // a request, for the same one of the other members
  std::chrono::milliseconds to_finish{1000};  // when a member has gone: for what is under way to the others

  // The publisher's turn to notice comes first.
  std::chrono::milliseconds receivers_to_move() const { return to_move + to_move / 2; }
};

}  // namespace layercast::nccl_channel
