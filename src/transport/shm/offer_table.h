// The table of an offer, as FORMAT.md specifies it: written by the publisher, read and checked by the receiver.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "src/transport/channel.h"
#include "src/transport/shm/arena.h"
#include "src/transport/shm/memfd.h"

namespace layercast::shm_channel {

constexpr std::size_t kMaxSegmentsOfOffer = 250;  // one message carries the descriptors of all of them

// The table as its publisher writes it. Resource; the destructor tells every receiver that the offer is gone.
class WrittenTable {
 public:
  // Throws kInvalidArgument, naming the tensor, if one does not lie in the arena; kResourceExhausted if the offer lies
  // in too many segments.
  WrittenTable(const Offer& offer, const Arena& arena);
  ~WrittenTable();
  WrittenTable(const WrittenTable&) = delete;
  WrittenTable& operator=(const WrittenTable&) = delete;

  int fd() const { return file_.fd.get(); }
  const std::vector<std::shared_ptr<const Segment>>& segments() const { return segments_; }

 private:
  Memfd file_;
  std::vector<std::shared_ptr<const Segment>> segments_;  // second owner: the arena
};

// The table as a receiver reads it. Resource.
class ReadTable {
 public:
  // Maps and checks the table against the segments that came with it. Throws kCorrupt.
  ReadTable(const UniqueFd& fd, std::vector<std::shared_ptr<const Mapping>> segments);
  bool live() const;  // whether the publisher still offers it
  const std::vector<OfferedTensor>& tensors() const { return tensors_; }

 private:
  Mapping memory_;
  // Shared with the cache, and with the tables of other offers in the same segments.
  std::vector<std::shared_ptr<const Mapping>> segments_;
  std::vector<OfferedTensor> tensors_;
};

}  // namespace layercast::shm_channel
