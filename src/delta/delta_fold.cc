#include <string>

#include "layercast/error.h"
#include "src/delta/delta_body.h"
#include "src/delta/delta_frame.h"
#include "src/delta/element_bits.h"
#include "src/delta/ordered_steps.h"
#include "src/delta/pack_changes.h"

namespace layercast {
namespace {

void SetBit(std::vector<std::uint64_t>& words, std::size_t element) {
  words[element / kWordBits] |= std::uint64_t{1} << element % kWordBits;
}

ChangeList NoChanges(const DeltaHeader& header) {
  ChangeList changes{.elements = header.elements, .element_bytes = header.element_bytes, .words = {}, .steps = {}};
  changes.words.resize(NumWords(header.elements));
  return changes;
}

ChangeList ChangesOf(const OpenedFrame& frame) {
  const DeltaBody body = ReadBody(frame);
  ChangeList changes = NoChanges(frame.header);
  WithChanges(frame.header, body, [&](auto positions, const StepBytes& steps) {
    for (; positions.next() != kNoPosition; positions.Advance()) SetBit(changes.words, positions.next());
    changes.steps.codes.assign(steps.codes.begin(), steps.codes.end());
    changes.steps.wide.assign(steps.wide.begin(), steps.wide.end());
  });
  return changes;
}

// Steps add. Those that cancel each other are none.
template <class U>
void Merge(const ChangeList& first, const ChangeList& second, ChangeList& into) {
  BitPositions at_first(first.words);
  BitPositions at_second(second.words);
  StepReader<U> first_steps(first.steps.view());
  StepReader<U> second_steps(second.steps.view());
  StepWriter<U> steps(into.steps, first.changed() + second.changed());
  for (;;) {
    const std::size_t element = std::min(at_first.next(), at_second.next());
    if (element == kNoPosition) break;
    U step = 0;
    if (at_first.next() == element) {
      step = Unzigzag(first_steps.Next());
      at_first.Advance();
    }
    if (at_second.next() == element) {
      step = static_cast<U>(step + Unzigzag(second_steps.Next()));
      at_second.Advance();
    }
    if (step == 0) continue;
    SetBit(into.words, element);
    steps.Put(Zigzag(step));
  }
  steps.Close();
}

void CheckFollows(const DeltaHeader& first, const DeltaHeader& second) {
  if (first.elements != second.elements || first.element_bytes != second.element_bytes) {
    throw Error(ErrorCode::kInvalidArgument, "deltas to fold: " + std::to_string(first.elements) + " elements of " +
                                                 std::to_string(first.element_bytes) + " bytes, and " +
                                                 std::to_string(second.elements) + " of " +
                                                 std::to_string(second.element_bytes));
  }
  if (second.form == DeltaForm::kDense || first.result == second.base) return;
  throw Error(ErrorCode::kInvalidArgument, "deltas to fold: the first leads to " + first.result.ToHex() +
                                               ", the second begins at " + second.base.ToHex());
}

void CheckFolds(const DeltaHeader& header) {
  if (header.form != DeltaForm::kTwoLists) return;
  throw Error(ErrorCode::kUnsupported, "deltas to fold: one is in two lists, which only its base can tell apart");
}

// The bytes that `first` leads to, moved on.
std::vector<std::byte> FoldOntoDense(const OpenedFrame& first, std::span<const std::byte> second, DeltaEffort effort) {
  const DeltaBody body = ReadBody(first);
  std::vector<std::byte> bytes(body.dense.bytes().begin(), body.dense.bytes().end());
  ApplyDelta(second, bytes);
  return EncodeDense({.bytes = bytes, .digest = ReadDeltaHeader(second).result}, first.header.element_bytes, effort);
}

}  // namespace

std::vector<std::byte> FoldDeltas(std::span<const std::byte> first, std::span<const std::byte> second,
                                  DeltaEffort effort) {
  const OpenedFrame from = OpenFrame(first);
  const OpenedFrame to = OpenFrame(second);
  CheckFollows(from.header, to.header);
  if (to.header.form == DeltaForm::kDense) return {second.begin(), second.end()};
  if (from.header.form == DeltaForm::kDense) return FoldOntoDense(from, second, effort);
  CheckFolds(from.header);
  CheckFolds(to.header);
  ChangeList folded = NoChanges(from.header);
  ForElement(folded.element_bytes,
             [&](auto element) { Merge<typename decltype(element)::type>(ChangesOf(from), ChangesOf(to), folded); });
  return PackChanges(folded, {.base = from.header.base, .result = to.header.result, .base_bytes = {}, .next_bytes = {}},
                     effort);
}

}  // namespace layercast
