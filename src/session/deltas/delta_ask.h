// Asks the publishers of a snapshot for what changed since the version that this receiver keeps, and decides between
// that and all bytes. Used by a fetch session before it subscribes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layercast/transfer_cost.h"
#include "src/session/deltas/delta_terms.h"
#include "src/session/deltas/source_copy.h"
#include "src/session/link/publisher_link.h"
#include "src/wire/frames.h"
#include "src/wire/schedule.h"

namespace layercast {

// One publisher's chunks as deltas of those that this receiver keeps. Value; borrows the base.
struct OfferedDelta {
  std::uint64_t offer = 0;
  std::vector<std::uint64_t> chunk_bytes;  // of each chunk's frame
  const KeptChunks* base = nullptr;
};

// Value; one thread only. Publishers are named by their rank.
class DeltaAsk {
 public:
  // `base`: what this receiver keeps; null: nothing yet.
  DeltaAsk(const SourceCopy* base, std::size_t publishers) : base_(base), asked_(publishers), deltas_(publishers) {}

  // Asks one publisher, for its own schedule, unless deltas would be of no use. Returns whether it was asked.
  bool Ask(std::size_t publisher, const DeltaTerms& terms, const Schedule& schedule, PublisherLink& link);
  // Throws kCorrupt if the publisher answers something else than was asked.
  void Take(std::size_t publisher, const Schedule& schedule, const PublisherLink& link, const wire::Message& answer);

  const std::vector<std::optional<OfferedDelta>>& deltas() const { return deltas_; }
  const DeltaChoice& choice() const { return choice_; }

 private:
  // Empty: it is to be asked.
  std::string WhyNot(std::size_t publisher, const DeltaTerms& terms, const Schedule& schedule) const;
  void Say(const std::string& why);

  const SourceCopy* const base_;
  std::vector<DeltaTerms> asked_;
  std::vector<std::optional<OfferedDelta>> deltas_;
  DeltaChoice choice_;
};

}  // namespace layercast
