// The streams of a frame, read and checked: counts, sizes, order and range hold, so that applying them needs no more
// checks. Used by what applies frames, and by what folds them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/delta/byte_stream.h"
#include "src/delta/change_positions.h"
#include "src/delta/delta_header.h"
#include "src/delta/gap_list.h"
#include "src/delta/step_list.h"

namespace layercast {

// Elements by their gaps, and their steps. Value; borrows the frame's bytes.
struct GappedSteps {
  std::size_t gap_width = 1;
  StreamBytes high;
  StreamBytes low;
  StreamBytes codes;
  StreamBytes wide;

  GapBytes gaps() const { return {gap_width, high.bytes(), low.bytes()}; }
  StepBytes steps() const { return {codes.bytes(), wide.bytes()}; }
};

// Value; borrows the frame's bytes.
struct DeltaBody {
  StreamBytes dense;                 // kDense: the new bytes
  std::vector<std::uint64_t> words;  // kBitmap
  GappedSteps list;   // kGaps; of kRange and kBitmap the steps alone; kTwoLists: of those that are not small
  GappedSteps small;  // kTwoLists
};

// Throws kCorrupt unless all of it is right.
DeltaBody ReadBody(const OpenedFrame& frame);

// Calls visit(positions) with the walker of these gaps.
template <class Visit>
void WithGaps(const GapBytes& gaps, const Visit& visit) {
  if (gaps.width == 2) {
    visit(GapPositions<2>(gaps.high, gaps.low));
  } else {
    visit(GapPositions<1>(gaps.high, gaps.low));
  }
}

// Calls visit(positions, steps) with the walker over what changed. Not for kDense and kTwoLists, which need bytes.
template <class Visit>
void WithChanges(const DeltaHeader& header, const DeltaBody& body, const Visit& visit) {
  const StepBytes steps = body.list.steps();
  switch (header.form) {
    case DeltaForm::kRange: return visit(RangePositions(header.parameter, header.changed), steps);
    case DeltaForm::kBitmap: return visit(BitPositions(body.words), steps);
    default: return WithGaps(body.list.gaps(), [&](auto positions) { visit(positions, steps); });
  }
}

}  // namespace layercast
