#include "engine_side/adapters/adapter_slots.h"

#include <algorithm>
#include <string>
#include <utility>

#include "layercast/error.h"
#include "src/base/check.h"
#include "src/base/digest/digest.h"
#include "src/base/memory/buffer_for.h"

namespace layercast {
namespace {

constexpr std::int64_t kLargestRank = 512;
constexpr std::size_t kMostSlots = 4096;

std::size_t BytesOfShape(DType dtype, const Shape& shape) { return static_cast<std::size_t>(NumBytes(dtype, shape)); }

[[noreturn]] void Refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, "adapter slots: " + what);
}

AdapterSlotSizes Checked(const AdapterSlotSizes& sizes) {
  if (sizes.slots < 1 || sizes.slots > kMostSlots) {
    Refuse("expected 1 to " + std::to_string(kMostSlots) + " slots, got " + std::to_string(sizes.slots));
  }
  CheckFactors(sizes.max_rank, sizes.dtype);
  return sizes;
}

}  // namespace

void CheckFactors(std::int64_t max_rank, DType dtype) {
  if (max_rank < 1 || max_rank > kLargestRank) {
    Refuse("expected a largest rank of 1 to " + std::to_string(kLargestRank) + ", got " + std::to_string(max_rank));
  }
  if (dtype != DType::kBF16 && dtype != DType::kF16 && dtype != DType::kF32) {
    Refuse("expected factors of bf16, f16 or f32, got " + std::string(Name(dtype)));
  }
}

Digest SlotDigest(const Digest& factors, std::span<const AdapterNumbers> numbers) {
  Digester digester;
  digester.Update(std::as_bytes(std::span(&factors, 1)));
  digester.Update(std::as_bytes(numbers));
  return digester.Finish();
}

AdapterSlots::AdapterSlots(std::vector<AdapterTerm> terms, const AdapterSlotSizes& sizes, MemoryResource& memory,
                           MemoryResource& numbers)
    : terms_(std::move(terms)), sizes_(Checked(sizes)), device_(memory.device()) {
  const std::string all = std::to_string(sizes_.slots) + " slots of " + std::to_string(BytesOf(terms_, sizes_)) +
                          " bytes together, rank " + std::to_string(sizes_.max_rank);
  const auto take = [&](const std::string& name, const Shape& shape) {
    return BufferFor("adapter slots (" + all + "): " + name, memory, sizes_.slots * BytesOfShape(sizes_.dtype, shape));
  };
  for (const AdapterTerm& term : terms_) {
    const Shape a = term.AShape(sizes_.max_rank), b = term.BShape(sizes_.max_rank);
    factors_.push_back({.a = take(term.AName(), a),
                        .b = take(term.BName(), b),
                        .a_bytes = BytesOfShape(sizes_.dtype, a) / term.num_experts(),
                        .b_bytes = BytesOfShape(sizes_.dtype, b) / term.num_experts(),
                        .experts = term.num_experts()});
    first_number_.push_back(numbers_of_slot_);
    numbers_of_slot_ += term.num_experts();
  }
  numbers_ = BufferFor("adapter slots (" + all + "): ranks and scales", numbers,
                       sizes_.slots * numbers_of_slot_ * sizeof(AdapterNumbers));
}

std::uint64_t AdapterSlots::BytesOf(std::span<const AdapterTerm> terms, const AdapterSlotSizes& sizes) {
  std::uint64_t bytes = 0;
  for (const AdapterTerm& term : terms) {
    bytes +=
        BytesOfShape(sizes.dtype, term.AShape(sizes.max_rank)) + BytesOfShape(sizes.dtype, term.BShape(sizes.max_rank));
  }
  return sizes.slots * bytes;
}

std::vector<CapturedBuffer> AdapterSlots::Buffers(std::size_t slot) const {
  LAYERCAST_CHECK(slot < sizes_.slots);
  std::vector<CapturedBuffer> buffers;
  const auto add = [&](std::string name, std::byte* all, Shape shape) {
    std::byte* const address = all + slot * BytesOfShape(sizes_.dtype, shape);
    buffers.push_back({.name = std::move(name),
                       .address = address,
                       .dtype = sizes_.dtype,
                       .shape = std::move(shape),
                       .device = device_});
  };
  for (std::size_t i = 0; i < terms_.size(); ++i) {
    add(terms_[i].AName(), A(i), terms_[i].AShape(sizes_.max_rank));
    add(terms_[i].BName(), B(i), terms_[i].BShape(sizes_.max_rank));
  }
  return buffers;
}

std::span<AdapterNumbers> AdapterSlots::Numbers(std::size_t slot) {
  LAYERCAST_CHECK(slot < sizes_.slots);
  return {reinterpret_cast<AdapterNumbers*>(numbers_.data()) + slot * numbers_of_slot_, numbers_of_slot_};
}

std::span<const AdapterNumbers> AdapterSlots::Numbers(std::size_t slot) const {
  return const_cast<AdapterSlots*>(this)->Numbers(slot);
}

void AdapterSlots::Clear(std::size_t slot) { std::ranges::fill(Numbers(slot), AdapterNumbers{}); }

bool AdapterSlots::Has(std::size_t slot, std::size_t term) const {
  const auto numbers = Numbers(slot).subspan(first_number_[term], factors_[term].experts);
  return std::ranges::any_of(numbers, [](const AdapterNumbers& of) { return of.rank > 0; });
}

std::array<std::span<std::byte>, 2> AdapterSlots::Factors(std::size_t term, std::size_t slot) const {
  LAYERCAST_CHECK(slot < sizes_.slots);
  const TermFactors& of = factors_[term];
  const std::size_t a_bytes = of.experts * of.a_bytes, b_bytes = of.experts * of.b_bytes;
  return {std::span(A(term) + slot * a_bytes, a_bytes), std::span(B(term) + slot * b_bytes, b_bytes)};
}

const std::byte* AdapterSlots::A(std::size_t term, std::size_t slot, std::size_t expert) const {
  const TermFactors& of = factors_[term];
  return of.a.data() + (slot * of.experts + expert) * of.a_bytes;
}

const std::byte* AdapterSlots::B(std::size_t term, std::size_t slot, std::size_t expert) const {
  const TermFactors& of = factors_[term];
  return of.b.data() + (slot * of.experts + expert) * of.b_bytes;
}

AdapterSlots::Terms AdapterSlots::TermsOf(std::string_view layer, std::string_view parameter) const {
  const auto is = [&](const AdapterTerm& term) { return term.layer == layer && term.parameter == parameter; };
  const auto first = std::ranges::find_if(terms_, is);
  const auto last = std::find_if_not(first, terms_.end(), is);
  return {static_cast<std::size_t>(first - terms_.begin()), static_cast<std::size_t>(last - first)};
}

}  // namespace layercast
