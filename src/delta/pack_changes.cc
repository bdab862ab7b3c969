#include "src/delta/pack_changes.h"

#include <algorithm>
#include <string>

#include "layercast/error.h"
#include "src/delta/byte_stream.h"
#include "src/delta/change_positions.h"
#include "src/delta/delta_density.h"
#include "src/delta/element_bits.h"
#include "src/delta/gap_list.h"
#include "src/delta/ordered_steps.h"
#include "src/delta/two_lists.h"

namespace layercast {
namespace {

// A form that a frame could have. Value.
struct Candidate {
  DeltaForm form = DeltaForm::kSkip;
  double plain = 0.0;     // bytes without compression: exactly
  double expected = 0.0;  // with it: an estimate
};

DeltaCount CountOf(const ChangeList& changes) {
  DeltaCount count{.elements = changes.elements, .changed = changes.changed(), .first = 0, .end = 0};
  std::size_t first = 0;
  while (changes.words[first] == 0) ++first;
  std::size_t last = changes.words.size() - 1;
  while (changes.words[last] == 0) --last;
  count.first = first * kWordBits + static_cast<std::size_t>(std::countr_zero(changes.words[first]));
  count.end = last * kWordBits + static_cast<std::size_t>(std::bit_width(changes.words[last]));
  return count;
}

// The steps of all elements of a range, also of those that did not change.
StepList StepsOfRange(const ChangeList& changes, const DeltaCount& count) {
  StepList steps{.codes = std::vector<std::byte>(count.end - count.first), .wide = changes.steps.wide};
  std::size_t step = 0;
  for (BitPositions positions(changes.words); positions.next() != kNoPosition; positions.Advance()) {
    steps.codes[positions.next() - count.first] = changes.steps.codes[step++];
  }
  return steps;
}

// Packs one list of changes in several forms.
class Packer {
 public:
  Packer(const ChangeList& changes, const PackedFor& known, DeltaEffort effort)
      : changes_(changes), known_(known), effort_(effort), count_(CountOf(changes)), streams_(compresses()) {}

  std::vector<std::byte> Smallest() {
    std::vector<std::byte> smallest;
    for (const Candidate& candidate : Promising()) {
      Keep(candidate.form == DeltaForm::kDense ? Dense() : Pack(candidate.form), smallest);
    }
    if (effort_ == DeltaEffort::kSmallest && !known_.base_bytes.empty()) {
      const auto threshold = BestThreshold(changes_, known_.base_bytes);
      if (threshold.has_value()) Keep(PackTwoLists(*threshold), smallest);
    }
    return smallest;
  }

 private:
  bool compresses() const { return effort_ != DeltaEffort::kFast; }

  static void Keep(std::vector<std::byte> frame, std::vector<std::byte>& smallest) {
    if (smallest.empty() || frame.size() < smallest.size()) smallest = std::move(frame);
  }

  std::vector<Candidate> All() {
    // Gaps take a byte each: where there are so many changes, bits take less, compressed or not.
    constexpr std::size_t kTooManyForGaps = 4;
    const DeltaEstimate estimate = EstimateDelta(count_, changes_.element_bytes, effort_);
    const StepList& list = changes_.steps;
    const auto steps = static_cast<double>(list.codes.size() + list.wide.size());
    std::vector<Candidate> all;
    if (changes_.changed() <= changes_.elements / kTooManyForGaps) {
      gaps_ = MakeGaps(changes_.words, changes_.changed());
      all.push_back({DeltaForm::kGaps, static_cast<double>(gaps_.bytes()) + steps, estimate.gaps});
    }
    const std::size_t bitmap = (changes_.elements + 7) / 8;
    all.push_back({DeltaForm::kBitmap, static_cast<double>(bitmap) + steps, estimate.bitmap});
    all.push_back(
        {DeltaForm::kRange, static_cast<double>(count_.end - count_.first + list.wide.size()), estimate.range});
    const std::size_t dense = changes_.elements * changes_.element_bytes;
    if (!known_.next_bytes.empty()) all.push_back({DeltaForm::kDense, static_cast<double>(dense), estimate.dense});
    return all;
  }

  // Those that may turn out to be the smallest: without compression it is known which. The estimate does not know of
  // changes that are clustered, but compression never adds.
  std::vector<Candidate> Promising() {
    constexpr double kEstimateIsOff = 1.1;
    const auto size_of = [&](const Candidate& candidate) {
      return compresses() ? std::min(candidate.plain, candidate.expected) : candidate.plain;
    };
    std::vector<Candidate> all = All();
    const double least = size_of(*std::ranges::min_element(all, {}, size_of));
    std::erase_if(all, [&](const Candidate& candidate) {
      return size_of(candidate) > (compresses() ? kEstimateIsOff * least : least);
    });
    return all;
  }

  DeltaHeader HeaderOf(DeltaForm form) const {
    return {.element_bytes = changes_.element_bytes,
            .form = form,
            .elements = changes_.elements,
            .changed = changes_.changed(),
            .parameter = 0,
            .base = known_.base,
            .result = known_.result};
  }

  void PutSteps(const StepList& steps, ByteWriter& body) {
    streams_.Write(steps.codes, body);
    streams_.Write(steps.wide, body);
  }

  void PutList(const GapList& gaps, const StepList& steps, ByteWriter& body) {
    body.Put(static_cast<std::uint8_t>(gaps.width));
    streams_.Write(gaps.high, body);
    streams_.Write(gaps.low, body);
    PutSteps(steps, body);
  }

  std::vector<std::byte> Pack(DeltaForm form) {
    DeltaHeader header = HeaderOf(form);
    ByteWriter body;
    switch (form) {
      case DeltaForm::kRange:
        header.parameter = count_.first;
        header.changed = count_.end - count_.first;
        PutSteps(StepsOfRange(changes_, count_), body);
        break;
      case DeltaForm::kBitmap:
        streams_.Write(std::as_bytes(std::span(changes_.words)).first((changes_.elements + 7) / 8), body);
        PutSteps(changes_.steps, body);
        break;
      default: PutList(gaps_, changes_.steps, body);
    }
    return JoinFrame(header, body.bytes());
  }

  std::vector<std::byte> PackTwoLists(std::uint32_t threshold) {
    const TwoLists lists = SplitChanges(changes_, known_.base_bytes, threshold);
    DeltaHeader header = HeaderOf(DeltaForm::kTwoLists);
    header.parameter = threshold;
    ByteWriter body;
    PutList(MakeGaps(lists.small_words, lists.small_steps.codes.size()), lists.small_steps, body);
    PutList(MakeGaps(lists.other_words, lists.other_steps.codes.size()), lists.other_steps, body);
    return JoinFrame(header, body.bytes());
  }

  std::vector<std::byte> Dense() const {
    return PackDense(known_.next_bytes, changes_.element_bytes, known_.result, effort_);
  }

  const ChangeList& changes_;
  const PackedFor& known_;
  DeltaEffort effort_;
  DeltaCount count_;
  StreamWriter streams_;
  GapList gaps_;  // unless there are too many
};

}  // namespace

std::vector<std::byte> PackChanges(const ChangeList& changes, const PackedFor& known, DeltaEffort effort) {
  if (changes.changed() != 0) return Packer(changes, known, effort).Smallest();
  if (known.base != known.result) {
    throw Error(ErrorCode::kInvalidArgument,
                "delta: nothing changed, but the digest from " + known.base.ToHex() + " to " + known.result.ToHex());
  }
  return JoinFrame({.element_bytes = changes.element_bytes,
                    .form = DeltaForm::kSkip,
                    .elements = changes.elements,
                    .changed = 0,
                    .parameter = 0,
                    .base = known.base,
                    .result = known.result},
                   {});
}

std::vector<std::byte> PackDense(std::span<const std::byte> next, std::size_t element_bytes, const Digest& result,
                                 DeltaEffort effort) {
  ByteWriter body;
  StreamWriter(effort != DeltaEffort::kFast).WriteElements(next, element_bytes, body);
  return JoinFrame({.element_bytes = element_bytes,
                    .form = DeltaForm::kDense,
                    .elements = next.size() / element_bytes,
                    .changed = next.size() / element_bytes,
                    .parameter = 0,
                    .base = {},
                    .result = result},
                   body.bytes());
}

}  // namespace layercast
