#include "engine_side/reload/noise/clean_norms.h"

#include <atomic>
#include <cstring>

#include "src/base/digest/digest.h"
#include "src/base/rounding.h"

namespace layercast {
namespace {

std::size_t BytesOf(const KernelLayout& layout, const std::vector<Norm>& norms) {
  if (norms.empty()) return 0;
  const Norm& last = norms.back();
  return last.offset + RoundUp(layout.tensors()[last.tensor].num_bytes, kMemoryAlignment);
}

}  // namespace

Digest CleanNorms::Record::Sealed() const {
  return DigestOf(std::as_bytes(std::span(this, 1)).first(offsetof(Record, seal)));
}

std::size_t CleanNorms::RecordBytes() const { return RoundUp(2 * sizeof(Record), kMemoryAlignment); }

CleanNorms::CleanNorms(const KernelLayout& layout, const std::vector<Norm>& norms, MemoryResource& memory)
    : layout_(layout), slot_bytes_(BytesOf(layout, norms)), memory_(memory, RecordBytes() + 2 * slot_bytes_) {
  const Digest of = DigestOf(layout);
  record_.layout = of;
  for (std::size_t copy = 0; copy < 2; ++copy) {
    Record kept;
    std::memcpy(&kept, memory_.data() + copy * sizeof kept, sizeof kept);
    const bool valid = kept.seal == kept.Sealed() && kept.layout == of && kept.served.slot < 2;
    if (valid && kept.writes >= record_.writes) record_ = kept;
  }
}

std::span<std::byte> CleanNorms::In(std::uint32_t slot, const Norm& norm) const {
  return memory_.span().subspan(RecordBytes() + slot * slot_bytes_ + norm.offset,
                                layout_.tensors()[norm.tensor].num_bytes);
}

// A killed process has executed its stores in program order, as far as it got. So it is enough to keep the compiler
// from moving other stores across this one.
void CleanNorms::Write() {
  ++record_.writes;
  record_.seal = record_.Sealed();
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::memcpy(memory_.data() + record_.writes % 2 * sizeof record_, &record_, sizeof record_);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

void CleanNorms::Begin() {
  record_.staged = {};
  Write();
}

void CleanNorms::Note(const Noise& noise) {
  record_.staged = {.known = 1, .slot = staged_slot(), .noise = noise};
  Write();
}

void CleanNorms::Become() {
  record_.served = record_.staged;
  Write();
}

void CleanNorms::RollBack() {
  record_.served = record_.before;
  Write();
}

void CleanNorms::Settle() {
  record_.before = record_.served;
  Write();
}

void CleanNorms::Lose() {
  const bool lost = record_.served.known == 0 && record_.before.known == 0 && record_.staged.known == 0;
  if (lost) return;  // the memory may have been given back since
  record_ = {.layout = record_.layout, .writes = record_.writes, .served = {}, .before = {}, .staged = {}, .seal = {}};
  Write();
}

}  // namespace layercast
