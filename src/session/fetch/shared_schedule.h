// A schedule over the tensors of several publishers, divided among them: each is asked for its own regions of a chunk,
// as one chunk of its own schedule. Used by the fetching half of a session. Immutable values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/tensor/region.h"
#include "src/wire/schedule.h"

namespace layercast {

// What one publisher has of a chunk.
struct Share {
  std::uint32_t publisher = 0;
  std::uint32_t chunk = 0;  // of the publisher's own schedule
};

// The numbers of tensors that are counted consecutively, publisher by publisher.
class TensorNumbers {
 public:
  // How many tensors each publisher has.
  explicit TensorNumbers(std::span<const std::size_t> counts);

  std::uint32_t PublisherOf(std::uint32_t tensor) const;  // throws kInvalidArgument beyond the last
  std::uint32_t FirstOf(std::uint32_t publisher) const { return first_[publisher]; }
  std::size_t publishers() const { return first_.size() - 1; }

 private:
  std::vector<std::uint32_t> first_;  // of each publisher; one more at the end
};

class SharedSchedule {
 public:
  // The regions of `whole` number tensors by `numbers`. Each publisher's schedule has that publisher's own numbers.
  SharedSchedule(const Schedule& whole, TensorNumbers numbers);

  const TensorNumbers& numbers() const { return numbers_; }
  const Schedule& Of(std::size_t publisher) const { return schedules_[publisher]; }
  std::size_t num_chunks() const { return first_share_.size() - 1; }
  std::span<const Share> SharesOf(std::size_t chunk) const {
    return std::span(shares_).subspan(first_share_[chunk], first_share_[chunk + 1] - first_share_[chunk]);
  }
  // The whole schedule's chunk that a publisher's chunk is a share of.
  std::uint32_t WholeOf(std::size_t publisher, std::uint32_t chunk) const { return chunk_of_[publisher][chunk]; }
  // The publisher's first chunk that is a share of the whole schedule's chunk number `chunk`, or of a later one. If
  // there is none, how many chunks the publisher has.
  std::uint32_t FirstFrom(std::size_t publisher, std::uint32_t chunk) const;
  // The views of a chunk's regions, in the chunk's order, made from those of its shares, which are in the shares'
  // order.
  std::vector<RegionView> PutTogether(std::size_t chunk, std::span<const std::vector<RegionView>> views) const;

 private:
  const TensorNumbers numbers_;
  std::vector<Schedule> schedules_;  // by publisher
  std::vector<std::vector<std::uint32_t>>
      chunk_of_;                          // by publisher: for each of its chunks, the whole schedule's that it is of
  std::vector<Share> shares_;             // chunk by chunk
  std::vector<std::size_t> first_share_;  // of each chunk; one more at the end
  std::vector<std::uint32_t> share_of_;   // for each region of the whole: which of its chunk's shares has it
  std::vector<std::size_t> first_region_;
};

}  // namespace layercast
