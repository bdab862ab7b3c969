// The table of an offer, as FORMAT.md specifies it: written by the publisher, read and checked by the receiver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "src/transport/channel/channel.h"
#include "src/transport/shm/arena.h"
#include "src/transport/shm/memfd.h"

namespace layercast::shm_channel {

constexpr std::size_t kMaxSegmentsOfOffer = 250;  // one message carries the descriptors of all of them

// The table as its publisher writes it. Resource; the destructor tells every receiver that the offer is gone.
class WrittenTable {
 public:
  // `tables`: where the tables of all of the publisher's offers lie, and nothing else, so that an offer costs no
  // descriptor. `arena`: where the tensors lie. Throws kInvalidArgument, naming the tensor, if one does not lie there;
  // kResourceExhausted if the offer lies in too many segments, or there is no memory for the table.
  WrittenTable(const Offer& offer, Arena& tables, const Arena& arena);
  ~WrittenTable();
  WrittenTable(const WrittenTable&) = delete;
  WrittenTable& operator=(const WrittenTable&) = delete;

  const Location& place() const { return place_; }
  std::size_t bytes() const { return memory_.size(); }
  const std::vector<std::shared_ptr<const Segment>>& segments() const { return segments_; }

 private:
  Buffer memory_;
  Location place_;
  std::vector<std::shared_ptr<const Segment>> segments_;  // of the tensors; second owner: their arena
};

// What a receiver is told of a table: the file that it lies in with others, and where. Value.
struct TablePlace {
  std::shared_ptr<const Mapping> file;  // second owner: the cache
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// The table as a receiver reads it. Resource.
class ReadTable {
 public:
  // Reads the table of that offer, and checks it against the segments that came with it. Throws kNotFound if the
  // publisher has taken the offer back meanwhile, and kCorrupt.
  ReadTable(std::uint64_t offer_id, TablePlace place, std::vector<std::shared_ptr<const Mapping>> segments);
  bool live() const;  // whether the publisher still offers it
  const std::vector<OfferedTensor>& tensors() const { return tensors_; }

 private:
  std::vector<std::byte> Copy() const;

  std::uint64_t offer_id_;
  TablePlace place_;
  // Shared with the cache, and with the tables of other offers in the same segments.
  std::vector<std::shared_ptr<const Mapping>> segments_;
  std::vector<OfferedTensor> tensors_;
};

}  // namespace layercast::shm_channel
