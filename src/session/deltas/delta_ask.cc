#include "src/session/deltas/delta_ask.h"

#include <algorithm>
#include <numeric>

#include "layercast/error.h"
#include "src/session/deltas/encoded_delta.h"

namespace layercast {
namespace {

// Throws unless these can be the frames of a schedule's chunks.
void CheckSizes(const std::vector<std::uint64_t>& frames, const Schedule& schedule, const PublisherLink& link) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::kCorrupt, link.peer().text() + " " + what);
  };
  const std::vector<Chunk>& chunks = schedule.chunks();
  if (frames.size() != chunks.size()) {
    refuse("has deltas of " + std::to_string(frames.size()) + " chunks, expected " + std::to_string(chunks.size()));
  }
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const std::uint64_t most = chunks[i].num_bytes + kMostFrameHead;
    if (frames[i] > 0 && frames[i] <= most) continue;
    refuse("has a delta of " + std::to_string(frames[i]) + " bytes of chunk " + std::to_string(i + 1) +
           ", expected 1 to " + std::to_string(most));
  }
}

}  // namespace

bool DeltaAsk::Ask(std::size_t publisher, const DeltaTerms& terms, const Schedule& schedule, PublisherLink& link) {
  asked_[publisher] = terms;
  choice_.dense_bytes += terms.dense_bytes;
  choice_.estimated_dense_ms = std::max(choice_.estimated_dense_ms, terms.dense_ms());
  if (base_ != nullptr && !base_->parts.empty()) choice_.base = base_->parts.front().version;
  if (const std::string why = WhyNot(publisher, terms, schedule); !why.empty()) {
    Say(why);
    return false;
  }
  const Version& kept = base_->parts[publisher].version;
  link.Send(wire::AskDelta{.lineage = kept.lineage,
                           .step = kept.step,
                           .digest = kept.digest,
                           .schedule_digest = schedule.digest(),
                           .most_bytes = terms.most_bytes()});
  return true;
}

std::string DeltaAsk::WhyNot(std::size_t publisher, const DeltaTerms& terms, const Schedule& schedule) const {
  if (terms.use == DeltaUse::kNever) return "deltas are switched off";
  if (base_ == nullptr) return "nothing is kept yet that a delta could be of";
  if (base_->parts.size() != deltas_.size()) {
    return "what is kept came from " + std::to_string(base_->parts.size()) +
           " publishers, and this version comes from " + std::to_string(deltas_.size());
  }
  const SourceCopy::Part& kept = base_->parts[publisher];
  if (kept.chunks->schedule_digest() != schedule.digest() || schedule.chunks().empty()) {
    return "this version is taken by another schedule than " + kept.version.ToString();
  }
  if (terms.most_bytes() > 0) return "";
  if (terms.attaches) return "channel " + terms.channel + " hands out the publisher's memory: nothing is sent";
  return "channel " + terms.channel + " moves all bytes sooner than deltas are applied";
}

void DeltaAsk::Take(std::size_t publisher, const Schedule& schedule, const PublisherLink& link,
                    const wire::Message& answer) {
  const auto* const delta = std::get_if<wire::Delta>(&answer);
  if (delta == nullptr) link.RefuseAnswer("asking for a delta", "'delta'", answer);
  if (delta->chunk_bytes.empty()) return Say(delta->why.empty() ? "the publisher has no delta" : delta->why);
  CheckSizes(delta->chunk_bytes, schedule, link);
  const DeltaTerms& terms = asked_[publisher];
  const auto bytes = std::accumulate(delta->chunk_bytes.begin(), delta->chunk_bytes.end(), std::uint64_t{0});
  deltas_[publisher] = OfferedDelta{delta->offer_id, delta->chunk_bytes, base_->parts[publisher].chunks.get()};
  choice_.taken = true;
  choice_.encoded_bytes += bytes;
  choice_.estimated_delta_ms = std::max(choice_.estimated_delta_ms, terms.delta_ms(bytes));
  Say(terms.use == DeltaUse::kAlways ? "deltas are always taken" : "what changed takes less time than all bytes");
}

void DeltaAsk::Say(const std::string& why) {
  if (choice_.why.find(why) != std::string::npos) return;
  choice_.why += (choice_.why.empty() ? "" : "; ") + why;
}

}  // namespace layercast
