// What one thread does for the digests of leaves (leaf_digests.h). Four threads, a team, compute the digest of one
// leaf. leaf_digests.cu runs it on a device; tests run it on the host, thread by thread.
#pragma once

#include "src/device/kernels/leaf_digests.h"
#include "src/device/kernels/xxh3_long.cuh"
#include "src/device/kernels/xxh3_short.cuh"

namespace layercast::xxh3 {

// A digest as Digest (layercast/version.h) lays it out, which is C++20.
struct LeafDigest {
  std::uint64_t high;
  std::uint64_t low;
};

struct LeafArguments {
  const unsigned char* bytes;
  std::uint64_t count;
  LeafDigest* leaves;
};

// Value. Between the two calls the folds of the team's threads are added up, which is all that the threads exchange.
// `bytes` must be aligned to kAlignment. Teams past the last leaf do nothing.
template <std::size_t kAlignment>
class LeafBody {
 public:
  LAYERCAST_HOST_DEVICE LeafBody(const LeafArguments& arguments, std::uint64_t leaf, unsigned thread)
      : thread_(thread) {
    if (leaf >= NumLeaves(arguments.count)) return;
    const std::uint64_t left = arguments.count - leaf * kLeafBytes;
    input_ = arguments.bytes + leaf * kLeafBytes;
    length_ = left < kLeafBytes ? left : kLeafBytes;
    digest_ = arguments.leaves + leaf;
  }

  LAYERCAST_HOST_DEVICE Uint128 Fold() const {
    if (length_ <= kMostShort) return {};
    LanePair pair(thread_);
    pair.TakeIn<kAlignment>(input_, length_);
    return pair.Fold();
  }

  LAYERCAST_HOST_DEVICE void Finish(const Uint128& folds) const {
    if (thread_ != 0 || digest_ == nullptr) return;
    const Uint128 hash = length_ <= kMostShort ? HashShort(input_, length_) : FinishLong(folds, length_);
    *digest_ = {hash.high, hash.low};
  }

 private:
  unsigned thread_;
  const unsigned char* input_ = nullptr;
  std::uint64_t length_ = 0;
  LeafDigest* digest_ = nullptr;  // null past the last leaf
};

// Runs the body with the widest loads that the address allows. `where` is a device or the host, and has `void
// Run<Body>(arguments, leaves)`.
template <class Where>
void RunLeafDigests(const Where& where, const LeafArguments& arguments) {
  const std::uint64_t leaves = NumLeaves(arguments.count);
  const auto address = reinterpret_cast<std::uintptr_t>(arguments.bytes);
  if (address % 16 == 0) return where.template Run<LeafBody<16>>(arguments, leaves);
  if (address % 4 == 0) return where.template Run<LeafBody<4>>(arguments, leaves);
  where.template Run<LeafBody<1>>(arguments, leaves);
}

}  // namespace layercast::xxh3
