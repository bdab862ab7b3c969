#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "layercast/error.h"
#include "src/base/digest/digest.h"
#include "src/delta/delta_body.h"
#include "src/delta/delta_frame.h"
#include "src/delta/ordered_steps.h"
#include "src/delta/two_lists.h"

namespace layercast {
namespace {

// Copied, changed and digested at once, while they are in cache. Whole leaves of a digest, whole elements.
constexpr std::size_t kAppliedBytes = kLeafBytes;

void CheckBase(const DeltaHeader& header, const Digest& got) {
  if (got == header.base) return;
  throw Error(ErrorCode::kFailedPrecondition,
              "delta: expected a base of digest " + header.base.ToHex() + ", got " + got.ToHex());
}

[[noreturn]] void RefuseResult(const DeltaHeader& header, const Digest& got) {
  throw Error(ErrorCode::kCorrupt,
              "delta: expected a result of digest " + header.result.ToHex() + ", got " + got.ToHex());
}

OpenedFrame OpenFrameFor(std::span<const std::byte> frame, std::size_t bytes) {
  const OpenedFrame opened = OpenFrame(frame);
  if (opened.header.bytes() == bytes) return opened;
  throw Error(ErrorCode::kInvalidArgument, "delta: expected " + std::to_string(opened.header.bytes()) +
                                               " bytes to apply it to, got " + std::to_string(bytes));
}

// Changes elements up to `end`, forwards or back.
template <class U, bool kBack = false, class Positions>
void StepUntil(Positions& positions, StepReader<U>& steps, std::byte* elements, std::size_t end) {
  for (; positions.next() < end; positions.Advance()) {
    const U bits = LoadElement<U>(elements, positions.next());
    const U code = steps.Next();
    StoreElement(elements, positions.next(), kBack ? SteppedBack(bits, code) : Stepped(bits, code));
  }
}

// Each block once: fill(at, count) sees it before its elements change.
template <class U, class Positions, class Fill>
Digest StepInBlocks(Positions positions, const StepBytes& coded, std::span<std::byte> bytes, const Fill& fill) {
  StepReader<U> steps(coded);
  Digester result;
  for (std::size_t at = 0; at < bytes.size(); at += kAppliedBytes) {
    const std::size_t count = std::min(kAppliedBytes, bytes.size() - at);
    fill(at, count);
    StepUntil<U>(positions, steps, bytes.data(), (at + count) / sizeof(U));
    result.Update(bytes.subspan(at, count));
  }
  return result.Finish();
}

// Calls visit(positions, steps) for any form that has steps. Two lists are put into one before, from the base.
template <class Visit>
void WithSteps(const DeltaHeader& header, const DeltaBody& body, std::span<const std::byte> base, const Visit& visit) {
  if (header.form != DeltaForm::kTwoLists) return WithChanges(header, body, visit);
  const ChangeList changes = JoinLists(header, body, base);
  visit(BitPositions(changes.words), changes.steps.view());
}

// Brings the block at `at` into the cache in its order, which memory is fastest at: steps then jump about in it. This
// is asked for one block ahead, while the block before is changed and digested.
void TouchBlock(std::span<const std::byte> bytes, std::size_t at) {
  constexpr std::size_t kLine = 64;
  const std::size_t end = std::min(at + kAppliedBytes, bytes.size());
  for (; at < end; at += kLine) __builtin_prefetch(bytes.data() + at, 1);
}

// In place, from a base that is the right one. What leads elsewhere is taken back.
void StepInPlace(const DeltaHeader& header, const DeltaBody& body, std::span<std::byte> bytes) {
  ForElement(header.element_bytes, [&](auto element) {
    using U = typename decltype(element)::type;
    WithSteps(header, body, bytes, [&](const auto& positions, const StepBytes& coded) {
      TouchBlock(bytes, 0);
      const Digest got = StepInBlocks<U>(positions, coded, bytes,
                                         [&](std::size_t at, std::size_t count) { TouchBlock(bytes, at + count); });
      if (got == header.result) return;
      auto again = positions;
      StepReader<U> steps(coded);
      StepUntil<U, true>(again, steps, bytes.data(), header.elements);
      RefuseResult(header, got);
    });
  });
}

void StepInto(const DeltaHeader& header, const DeltaBody& body, const KnownBytes& base, std::span<std::byte> into) {
  Digester base_digest;
  const auto copy = [&](std::size_t at, std::size_t count) {
    std::memcpy(into.data() + at, base.bytes.data() + at, count);
    if (!base.digest.has_value()) base_digest.Update(std::span<const std::byte>(into).subspan(at, count));
  };
  Digest got;
  ForElement(header.element_bytes, [&](auto element) {
    using U = typename decltype(element)::type;
    WithSteps(header, body, base.bytes, [&](const auto& positions, const StepBytes& coded) {
      got = StepInBlocks<U>(positions, coded, into, copy);
    });
  });
  if (!base.digest.has_value()) CheckBase(header, base_digest.Finish());
  if (got != header.result) RefuseResult(header, got);
}

void WriteDense(const DeltaHeader& header, const DeltaBody& body, std::span<std::byte> into) {
  const std::span<const std::byte> bytes = body.dense.bytes();
  if (const Digest got = DigestOf(bytes); got != header.result) RefuseResult(header, got);
  if (!into.empty()) std::memcpy(into.data(), bytes.data(), into.size());
}

}  // namespace

DeltaHeader ReadDeltaHeader(std::span<const std::byte> frame) { return OpenFrame(frame).header; }

void ApplyDelta(std::span<const std::byte> frame, std::span<std::byte> bytes, std::optional<Digest> base) {
  const OpenedFrame opened = OpenFrameFor(frame, bytes.size());
  const DeltaHeader& header = opened.header;
  if (header.form != DeltaForm::kDense) CheckBase(header, base.has_value() ? *base : DigestOf(bytes));
  const DeltaBody body = ReadBody(opened);
  if (header.form == DeltaForm::kSkip) return;
  if (header.form == DeltaForm::kDense) return WriteDense(header, body, bytes);
  StepInPlace(header, body, bytes);
}

void ApplyDeltaInto(std::span<const std::byte> frame, const KnownBytes& base, std::span<std::byte> into) {
  const OpenedFrame opened = OpenFrameFor(frame, into.size());
  const DeltaHeader& header = opened.header;
  const DeltaBody body = ReadBody(opened);
  if (header.form == DeltaForm::kDense) return WriteDense(header, body, into);
  if (base.bytes.size() != into.size()) {
    throw Error(ErrorCode::kInvalidArgument, "delta: expected a base of " + std::to_string(into.size()) +
                                                 " bytes, got " + std::to_string(base.bytes.size()));
  }
  if (base.digest.has_value()) CheckBase(header, *base.digest);
  StepInto(header, body, base, into);
}

}  // namespace layercast
