// The state that a recurrent block keeps of each sequence. Used by the blocks with a state.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "engine_side/engine/cpu/blocks/block.h"
#include "src/base/check.h"

namespace layercast {

// Resource; one thread only.
template <class State>
class SequenceStates {
 public:
  // The state of the row's sequence: `make_fresh()` if the sequence begins with this row, else what its last token
  // left.
  template <class MakeFresh>
  State& Of(const TokenRow& row, const MakeFresh& make_fresh) {
    if (row.position == 0) return states_[row.sequence] = make_fresh();
    const auto found = states_.find(row.sequence);
    LAYERCAST_CHECK(found != states_.end());
    return found->second;
  }

  void Drop(std::uint64_t sequence) { states_.erase(sequence); }
  void DropAll() { states_.clear(); }

 private:
  std::unordered_map<std::uint64_t, State> states_;
};

}  // namespace layercast
