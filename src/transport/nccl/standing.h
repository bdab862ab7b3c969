// Whether a receiver that its fleet went on without may come back to it. Value; one thread only (the service's).
#pragma once

#include <algorithm>
#include <cstddef>

namespace layercast::nccl_channel {

// A receiver *rests* when it has all that it asked for: between two versions. One that was put apart is back after its
// first rest; if it is put apart again before it has rested in the fleet, after twice as many, and so on. So whoever
// keeps a fleet waiting each time does that to one version in 64 in the end.
class Standing {
 public:
  static constexpr std::size_t kMostRests = 64;

  void PutApart() {
    sits_out_ = next_;
    next_ = std::min(2 * next_, kMostRests);
  }
  void Rested() {
    if (sits_out_ == 0) next_ = 1;
    if (sits_out_ > 0) --sits_out_;
  }
  bool MayReturn() const { return sits_out_ == 0; }

 private:
  std::size_t sits_out_ = 0;  // rests, from now on
  std::size_t next_ = 1;      // that it will sit out if it is put apart once more
};

}  // namespace layercast::nccl_channel
