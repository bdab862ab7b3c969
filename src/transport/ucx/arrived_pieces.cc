#include "src/transport/ucx/arrived_pieces.h"

#include <iterator>

#include "src/transport/channel/reply_plan.h"

namespace layercast::ucx_channel {

bool ArrivedPieces::Claim(std::uint64_t offset, std::uint64_t bytes) {
  if (offset > bytes_ || bytes > bytes_ - offset) return false;
  if ((bytes == 0) != (bytes_ == 0)) return false;
  // A chunk has no more pieces than this: those that are sent as they lie have kInPlaceFrom bytes or end such a run,
  // and at most one piece is gathered between two of them. So the memory that a malicious publisher can cost this end
  // is bounded by what was asked for.
  if (ends_.size() > 4 * (bytes_ / kInPlaceFrom) + 2) return false;
  const auto next = ends_.lower_bound(offset);
  if (next != ends_.end() && (next->first == offset || next->first < offset + bytes)) return false;
  if (next != ends_.begin() && std::prev(next)->second > offset) return false;
  ends_.emplace_hint(next, offset, offset + bytes);
  claimed_ += bytes;
  return true;
}

}  // namespace layercast::ucx_channel
