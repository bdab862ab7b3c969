// A memory resource that wraps another, and keeps blocks that are given back for the next requests. Fresh memory costs
// a page fault for every page, which is several times the cost of filling it. Used for the layers of a reload, which
// follow each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>

#include "layercast/memory.h"

namespace layercast {

// Which kept blocks serve a request.
enum class ServedBy : std::uint8_t {
  // The smallest that is large enough. If none is, all kept blocks are freed first, and the new block serves later,
  // smaller requests. So while one block is used at a time, used and kept memory together never exceed the largest
  // request.
  kLargeEnough,
  // Those of the same size. So requests that were made once, in whatever order, allocate nothing when they are made
  // again in that order. What is kept has been in use, but perhaps not at the same time: ReleaseIdle bounds it. If
  // there is no memory for a new block, all kept blocks are freed first.
  kSameSize,
};

// Resource; thread-safe.
class CachingMemory final : public MemoryResource {
 public:
  explicit CachingMemory(MemoryResource& upstream, ServedBy served_by = ServedBy::kLargeEnough)
      : upstream_(upstream), served_by_(served_by) {}

  std::byte* Allocate(std::size_t bytes) override;
  void Deallocate(std::byte* address, std::size_t bytes) noexcept override;
  Device device() const override { return upstream_.device(); }

  // Frees the blocks that are kept and not in use.
  void Release();
  // Frees those that nobody has used since the latest call of this.
  void ReleaseIdle();

 private:
  struct BySize {
    using is_transparent = void;
    bool operator()(const Buffer& a, const Buffer& b) const { return a.size() < b.size(); }
    bool operator()(const Buffer& block, std::size_t bytes) const { return block.size() < bytes; }
  };
  struct ByAddress {
    using is_transparent = void;
    using Before = std::less<const std::byte*>;
    bool operator()(const Buffer& a, const Buffer& b) const { return Before()(a.data(), b.data()); }
    bool operator()(const Buffer& block, const std::byte* address) const { return Before()(block.data(), address); }
    bool operator()(const std::byte* address, const Buffer& block) const { return Before()(address, block.data()); }
  };

  using Kept = std::multiset<Buffer, BySize>;
  std::byte* Take(Kept& kept, std::size_t bytes);
  Buffer NewBlock(std::size_t bytes);

  MemoryResource& upstream_;
  const ServedBy served_by_;
  std::mutex mutex_;  // guards what follows
  Kept kept_;         // blocks move to and from used_ as nodes, so that Deallocate cannot fail
  Kept idle_;         // kept since before the latest ReleaseIdle
  std::set<Buffer, ByAddress> used_;
};

}  // namespace layercast
