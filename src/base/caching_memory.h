// A memory resource that wraps another and keeps what it is given back for the next request: fresh memory costs a page
// fault for every page, several times what filling it costs. For requests that follow each other: the layers of a
// reload.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <set>

#include "layercast/memory.h"

namespace layercast {

// Thread-safe. A request is served by the smallest kept block that holds it. Where none does, all kept blocks are given
// back first, and the new one will serve the smaller requests to come: so while one block is used at a time, no more is
// held, used or kept, than the largest request.
class CachingMemory final : public MemoryResource {
 public:
  explicit CachingMemory(MemoryResource& upstream) : upstream_(upstream) {}

  std::byte* Allocate(std::size_t bytes) override;
  void Deallocate(std::byte* address, std::size_t bytes) noexcept override;
  Device device() const override { return upstream_.device(); }

  // Gives back all that is kept and not used.
  void Release();

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

  MemoryResource& upstream_;
  std::mutex mutex_;                    // guards what follows
  std::multiset<Buffer, BySize> kept_;  // blocks move between the two as nodes, so that giving one back cannot fail
  std::set<Buffer, ByAddress> used_;
};

}  // namespace layercast
