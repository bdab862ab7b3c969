// The adapter slots of one rank: memory for a number of adapters, taken once, whose addresses never change. A load
// fills a slot through its captured buffers; forward passes read the factors of the slots that their rows name.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine_side/adapters/adapter_terms.h"
#include "layercast/captured_buffer.h"
#include "layercast/dtype.h"
#include "layercast/memory.h"
#include "layercast/version.h"

namespace layercast {

// What a slot's memory does not say of a term. Value.
struct AdapterNumbers {
  std::int32_t rank = 0;  // 0: the adapter has nothing for this term
  float scale = 0.0F;
};

// Value.
struct AdapterSlotSizes {
  std::size_t slots = 0;
  std::int64_t max_rank = 16;  // of one term
  DType dtype = DType::kBF16;  // of the factors: bf16, f16 or f32
};

// Throws kInvalidArgument unless slots can be for that rank and have that dtype.
void CheckFactors(std::int64_t max_rank, DType dtype);

// What a slot's digest is of: the digest of the factors of its terms, and its numbers.
Digest SlotDigest(const Digest& factors, std::span<const AdapterNumbers> numbers);

// Resource. A slot is written by one thread while no forward pass reads it, which its caller sees to.
class AdapterSlots {
 public:
  // Takes all memory, with the contents that it has: files that outlive a rank bring back its slots. The factors come
  // from `memory`, which may be a device's, and the numbers from `numbers`, which is the host's; both outlive the
  // slots. Throws kInvalidArgument for sizes that are out of range, and kResourceExhausted, naming the term and the sum
  // of bytes, if there is not enough.
  AdapterSlots(std::vector<AdapterTerm> terms, const AdapterSlotSizes& sizes, MemoryResource& memory,
               MemoryResource& numbers);

  // The bytes of all factors: for each term, slots * experts * max_rank * (columns + rows) elements.
  static std::uint64_t BytesOf(std::span<const AdapterTerm> terms, const AdapterSlotSizes& sizes);

  std::span<const AdapterTerm> terms() const { return terms_; }
  const AdapterSlotSizes& sizes() const { return sizes_; }
  const Device& device() const { return device_; }  // of the factors

  // The factors of one slot, as buffers called AdapterTerm::AName and BName: A, B of the first term, and so on.
  std::vector<CapturedBuffer> Buffers(std::size_t slot) const;
  // The numbers of one slot, one for each term and expert: index (term's first number) + expert.
  std::span<AdapterNumbers> Numbers(std::size_t slot);
  std::span<const AdapterNumbers> Numbers(std::size_t slot) const;
  // Says that the slot holds nothing: no term of it is read. New memory that is not zero needs it for every slot.
  void Clear(std::size_t slot);
  // Whether the adapter in a slot has something for a term. If not, nobody reads what the slot holds of it.
  bool Has(std::size_t slot, std::size_t term) const;
  std::size_t first_number(std::size_t term) const { return first_number_[term]; }
  std::size_t numbers_of_slot() const { return numbers_of_slot_; }

  // For forward passes. The factors of all slots lie one after the other: [slots, (experts,) ...] from here on.
  std::byte* A(std::size_t term) const { return factors_[term].a.data(); }
  std::byte* B(std::size_t term) const { return factors_[term].b.data(); }
  // A and B of one slot, each with all experts.
  std::array<std::span<std::byte>, 2> Factors(std::size_t term, std::size_t slot) const;
  // The same of one slot, and one of its experts.
  const std::byte* A(std::size_t term, std::size_t slot, std::size_t expert = 0) const;
  const std::byte* B(std::size_t term, std::size_t slot, std::size_t expert = 0) const;
  const AdapterNumbers& NumbersOf(std::size_t term, std::size_t slot, std::size_t expert = 0) const {
    return Numbers(slot)[first_number_[term] + expert];
  }
  // The terms of a layer's parameter, which follow each other among terms(). None: adapters cannot change it.
  struct Terms {
    std::size_t first = 0, count = 0;
  };
  Terms TermsOf(std::string_view layer, std::string_view parameter) const;

 private:
  struct TermFactors {
    Buffer a, b;                           // of all slots
    std::size_t a_bytes = 0, b_bytes = 0;  // of one slot's expert
    std::size_t experts = 1;
  };

  const std::vector<AdapterTerm> terms_;
  const AdapterSlotSizes sizes_;
  const Device device_;                    // of the factors
  std::vector<TermFactors> factors_;       // by term
  std::vector<std::size_t> first_number_;  // by term
  std::size_t numbers_of_slot_ = 0;
  Buffer numbers_;  // AdapterNumbers [slots][numbers_of_slot_]
};

}  // namespace layercast
