// A schedule over the tensors of several publishers, shared out among them: each is asked for its own regions of a
// chunk, as one chunk of its own. Immutable value.
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
  std::uint32_t chunk = 0;  // of its schedule
};

// Tensors numbered through, publisher by publisher.
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
  // The regions of `whole` name tensors by `numbers`; those of each publisher's schedule by its own.
  SharedSchedule(const Schedule& whole, const TensorNumbers& numbers);

  const Schedule& Of(std::size_t publisher) const { return schedules_[publisher]; }
  std::size_t num_chunks() const { return first_share_.size() - 1; }
  std::span<const Share> SharesOf(std::size_t chunk) const {
    return std::span(shares_).subspan(first_share_[chunk], first_share_[chunk + 1] - first_share_[chunk]);
  }
  // Which of the whole's chunks a publisher's is of.
  std::uint32_t WholeOf(std::size_t publisher, std::uint32_t chunk) const { return chunk_of_[publisher][chunk]; }
  // The first chunk of a publisher's that is of the whole's chunk number `chunk`, or of a later one; if there is none,
  // how many chunks it has.
  std::uint32_t FirstFrom(std::size_t publisher, std::uint32_t chunk) const;
  // The views of a chunk's regions, in its order, of those of its shares, each in its own.
  std::vector<RegionView> PutTogether(std::size_t chunk, std::span<const std::vector<RegionView>> views) const;

 private:
  std::vector<Schedule> schedules_;  // by publisher
  std::vector<std::vector<std::uint32_t>>
      chunk_of_;                          // by publisher: of each of its chunks, which of the whole's it is of
  std::vector<Share> shares_;             // chunk by chunk
  std::vector<std::size_t> first_share_;  // of each chunk; one more at the end
  std::vector<std::uint32_t> share_of_;   // of each region of the whole: which of its chunk's shares has it
  std::vector<std::size_t> first_region_;
};

}  // namespace layercast
