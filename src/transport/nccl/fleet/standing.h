// Whether a receiver that its fleet went on without may come back to it. Part of Receiver.
#pragma once

#include <algorithm>
#include <cstddef>

namespace layercast::nccl_channel {

// Value; one thread only (the service thread). A receiver *rests* when it has all that it asked for, as between two
// versions. One that was put apart may return after its first rest; if it is put apart again before it has rested in
// the fleet, it may after twice as many rests, and so on. So a receiver that keeps its fleet waiting each time does so
// for one version in 64 in the end.
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
  std::size_t sits_out_ = 0;  // how many more rests it stays apart
  std::size_t next_ = 1;      // for how many rests it will stay apart if it is put apart once more
};

}  // namespace layercast::nccl_channel
