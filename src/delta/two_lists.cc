#include "src/delta/two_lists.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "layercast/error.h"
#include "src/delta/change_positions.h"
#include "src/delta/element_bits.h"
#include "src/delta/ordered_steps.h"

namespace layercast {
namespace {

// Elements by the highest bits of their magnitude: of bf16 and f32 the exponent, of bytes the whole.
constexpr std::size_t kBuckets = 256;

template <class U>
constexpr int kBucketShift = std::max(0, std::numeric_limits<U>::digits - 1 - 8);

template <class U>
std::size_t BucketOf(const std::byte* elements, std::size_t element) {
  return static_cast<std::size_t>((LoadElement<U>(elements, element) & ~kSignBit<U>) >> kBucketShift<U>);
}

using Histogram = std::array<double, kBuckets>;

// Of some blocks all over the tensor, scaled to all of it: about a million elements are enough.
template <class U>
Histogram SampledElements(std::span<const std::byte> base) {
  constexpr std::size_t kSampleBlock = 4096;
  constexpr std::size_t kSampled = std::size_t{1} << 20;
  const std::size_t elements = base.size() / sizeof(U);
  const std::size_t stride = std::max<std::size_t>(1, elements / kSampled) * kSampleBlock;
  Histogram histogram{};
  double sampled = 0.0;
  for (std::size_t block = 0; block < elements; block += stride) {
    const std::size_t end = std::min(elements, block + kSampleBlock);
    for (std::size_t i = block; i < end; ++i) histogram[BucketOf<U>(base.data(), i)] += 1.0;
    sampled += static_cast<double>(end - block);
  }
  for (double& count : histogram) count *= static_cast<double>(elements) / sampled;
  return histogram;
}

template <class U>
Histogram ChangedElements(const ChangeList& changes, std::span<const std::byte> base) {
  Histogram histogram{};
  for (BitPositions positions(changes.words); positions.next() != kNoPosition; positions.Advance()) {
    histogram[BucketOf<U>(base.data(), positions.next())] += 1.0;
  }
  return histogram;
}

// Bits that say which `changed` of so many it is.
double PositionBits(double changed, double elements) {
  const double unchanged = elements - changed;
  if (changed <= 0.0 || unchanged <= 0.0) return 0.0;
  return changed * std::log2(elements / changed) + unchanged * std::log2(elements / unchanged);
}

// The number of buckets that are small, with the fewest bits; 0 if that saves nothing worth a second list.
std::size_t BestCut(const Histogram& elements, const Histogram& changed) {
  constexpr double kWorthIt = 0.97;
  double all = 0.0;
  double all_changed = 0.0;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    all += elements[i];
    all_changed += changed[i];
  }
  double least = kWorthIt * PositionBits(all_changed, all);
  std::size_t best = 0;
  double small = 0.0;
  double small_changed = 0.0;
  for (std::size_t i = 0; i + 1 < kBuckets; ++i) {
    small += std::max(elements[i], changed[i]);  // samples may have missed some
    small_changed += changed[i];
    const double bits = PositionBits(small_changed, small) + PositionBits(all_changed - small_changed, all);
    if (bits >= least) continue;
    least = bits;
    best = i + 1;
  }
  return best;
}

std::vector<std::uint64_t> SmallOfBase(std::span<const std::byte> base, std::size_t element_bytes,
                                       std::uint32_t threshold) {
  std::vector<std::uint64_t> small(NumWords(base.size() / element_bytes));
  SmallBits(base, element_bytes, threshold, small);
  return small;
}

[[noreturn]] void RefuseLists(const std::string& what) {
  throw Error(ErrorCode::kCorrupt, "delta of form two lists: " + what);
}

void SetBitAt(std::span<std::uint64_t> words, std::size_t number) {
  words[number / kWordBits] |= std::uint64_t{1} << number % kWordBits;
}

bool BitAt(std::span<const std::uint64_t> words, std::size_t number) {
  return (words[number / kWordBits] >> number % kWordBits & 1) != 0;
}

// Sets the bits of the small elements that changed, which are listed by rank.
template <class Positions>
void MarkSmall(Positions ranks, std::span<const std::uint64_t> small, std::span<std::uint64_t> words) {
  std::size_t rank = 0;
  for (BitPositions element(small); element.next() != kNoPosition && ranks.next() != kNoPosition; element.Advance()) {
    if (rank++ != ranks.next()) continue;
    SetBitAt(words, element.next());
    ranks.Advance();
  }
  if (ranks.next() != kNoPosition) RefuseLists("expected ranks below " + std::to_string(rank) + " small elements");
}

template <class Positions>
void MarkOthers(Positions positions, std::span<const std::uint64_t> small, std::span<std::uint64_t> words) {
  for (; positions.next() != kNoPosition; positions.Advance()) {
    if (BitAt(small, positions.next())) RefuseLists("a small element is listed among the others");
    SetBitAt(words, positions.next());
  }
}

// Calls visit(is_small) for each change, in order.
template <class Visit>
void ForListOfEach(std::span<const std::uint64_t> words, std::span<const std::uint64_t> small, const Visit& visit) {
  for (BitPositions positions(words); positions.next() != kNoPosition; positions.Advance()) {
    visit(BitAt(small, positions.next()));
  }
}

template <class U>
void JoinSteps(const DeltaBody& body, std::span<const std::uint64_t> small, ChangeList& changes) {
  StepReader<U> of_small(body.small.steps());
  StepReader<U> of_others(body.list.steps());
  StepWriter<U> joined(changes.steps, body.small.steps().codes.size() + body.list.steps().codes.size());
  ForListOfEach(changes.words, small,
                [&](bool is_small) { joined.Put(is_small ? of_small.Next() : of_others.Next()); });
  joined.Close();
}

template <class U>
void SplitSteps(const ChangeList& changes, std::span<const std::uint64_t> small, std::size_t num_small,
                TwoLists& lists) {
  StepReader<U> steps(changes.steps.view());
  StepWriter<U> to_small(lists.small_steps, num_small);
  StepWriter<U> to_others(lists.other_steps, changes.changed() - num_small);
  ForListOfEach(changes.words, small,
                [&](bool is_small) { is_small ? to_small.Put(steps.Next()) : to_others.Put(steps.Next()); });
}

}  // namespace

std::optional<std::uint32_t> BestThreshold(const ChangeList& changes, std::span<const std::byte> base) {
  return ForElement(changes.element_bytes, [&](auto element) -> std::optional<std::uint32_t> {
    using U = typename decltype(element)::type;
    const std::size_t cut = BestCut(SampledElements<U>(base), ChangedElements<U>(changes, base));
    if (cut == 0) return std::nullopt;
    return static_cast<std::uint32_t>(cut << kBucketShift<U>);
  });
}

TwoLists SplitChanges(const ChangeList& changes, std::span<const std::byte> base, std::uint32_t threshold) {
  const std::vector<std::uint64_t> small = SmallOfBase(base, changes.element_bytes, threshold);
  TwoLists lists;
  lists.small_words.resize(NumWords(CountBits(small)));
  lists.other_words.resize(small.size());
  for (std::size_t i = 0; i < small.size(); ++i) lists.other_words[i] = changes.words[i] & ~small[i];
  std::size_t rank = 0;
  std::size_t num_small = 0;
  for (BitPositions element(small); element.next() != kNoPosition; element.Advance(), ++rank) {
    if (!BitAt(changes.words, element.next())) continue;
    SetBitAt(lists.small_words, rank);
    ++num_small;
  }
  ForElement(changes.element_bytes,
             [&](auto element) { SplitSteps<typename decltype(element)::type>(changes, small, num_small, lists); });
  return lists;
}

ChangeList JoinLists(const DeltaHeader& header, const DeltaBody& body, std::span<const std::byte> base) {
  const std::vector<std::uint64_t> small =
      SmallOfBase(base, header.element_bytes, static_cast<std::uint32_t>(header.parameter));
  ChangeList changes{.elements = header.elements, .element_bytes = header.element_bytes, .words = {}, .steps = {}};
  changes.words.resize(small.size());
  WithGaps(body.small.gaps(), [&](auto ranks) { MarkSmall(ranks, small, changes.words); });
  WithGaps(body.list.gaps(), [&](auto positions) { MarkOthers(positions, small, changes.words); });
  ForElement(header.element_bytes,
             [&](auto element) { JoinSteps<typename decltype(element)::type>(body, small, changes); });
  return changes;
}

}  // namespace layercast
