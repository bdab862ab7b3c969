#include "engine_side/server/rank/slot_lending.h"

#include <algorithm>
#include <utility>

#include "layercast/recorded_model.h"
#include "src/base/digest/digest.h"

namespace layercast {
namespace {

constexpr const char* kNumbers = "adapter.numbers";  // is no layer's
constexpr const char* kLineage = "slots of adapters";

std::vector<CapturedBuffer> FactorsOf(const AdapterSlots& slots, std::size_t slot, std::span<const std::size_t> terms) {
  const std::vector<CapturedBuffer> all = slots.Buffers(slot);  // A, B of the first term, and so on
  std::vector<CapturedBuffer> factors;
  for (const std::size_t term : terms) factors.insert(factors.end(), {all.at(2 * term), all.at(2 * term + 1)});
  return factors;
}

}  // namespace

std::vector<std::size_t> TermsIn(const AdapterSlots& slots, std::size_t slot) {
  std::vector<std::size_t> terms;
  for (std::size_t term = 0; term < slots.terms().size(); ++term) {
    if (slots.Has(slot, term)) terms.push_back(term);
  }
  return terms;
}

CapturedBuffers BuffersToLend(const AdapterSlots& slots, std::size_t slot, std::span<const std::size_t> terms,
                              std::span<AdapterNumbers> numbers) {
  std::vector<CapturedBuffer> buffers = FactorsOf(slots, slot, terms);
  buffers.push_back({.name = kNumbers,
                     .address = reinterpret_cast<std::byte*>(numbers.data()),
                     .dtype = DType::kU8,
                     .shape = {static_cast<std::int64_t>(numbers.size_bytes())}});
  return CapturedBuffers::Adopt(std::move(buffers));
}

std::unique_ptr<Module> TreeOfBuffers(const CapturedBuffers& buffers) {
  Recording recording;
  for (const CapturedBuffer& buffer : buffers.buffers()) {
    const auto number = static_cast<std::uint32_t>(recording.sources.size());
    const Box whole = Box::Whole(buffer.shape);
    recording.sources.push_back({buffer.name, buffer.dtype, buffer.shape});
    recording.parameters.push_back({.spec = recording.sources.back()});
    recording.copies.push_back({.source = number, .parameter = number, .from = whole, .to = whole});
  }
  return TreeOf(std::move(recording));
}

Digest DigestOfSlot(const AdapterSlots& slots, std::size_t slot) {
  return SlotDigest(CapturedBuffers::Adopt(FactorsOf(slots, slot, TermsIn(slots, slot))).ServedDigest(),
                    slots.Numbers(slot));
}

Version LentAs(std::size_t slot) { return {.lineage = kLineage, .step = slot, .digest = {}}; }

}  // namespace layercast
