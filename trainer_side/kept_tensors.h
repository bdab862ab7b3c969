// The copies of tensors that versions hold, found again by what is in them: versions that have a tensor alike have one
// copy of it. Used while snapshots are made.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <utility>

#include "layercast/memory.h"
#include "layercast/version.h"

namespace layercast {

// Resource; one thread at a time. It keeps no copy alive.
class KeptTensors {
 public:
  // A copy of these bytes that some version holds, or `copy`, which is found from now on. `digest` is of its bytes.
  std::shared_ptr<const Buffer> Keep(std::shared_ptr<const Buffer> copy, const Digest& digest) {
    std::weak_ptr<const Buffer>& known = copies_[{digest, copy->size()}];
    if (std::shared_ptr<const Buffer> same = known.lock()) return same;
    known = copy;
    if (copies_.size() >= forget_at_) Forget();
    return copy;
  }

 private:
  // Drops what no version holds any more, so that the map stays as large as what is held.
  void Forget() {
    std::erase_if(copies_, [](const auto& one) { return one.second.expired(); });
    forget_at_ = 2 * copies_.size() + kLeast;
  }

  static constexpr std::size_t kLeast = 1024;
  std::map<std::pair<Digest, std::size_t>, std::weak_ptr<const Buffer>> copies_;
  std::size_t forget_at_ = kLeast;
};

}  // namespace layercast
