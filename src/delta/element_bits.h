// Bits of elements, 64 to a word, lowest first: which differ between two versions, and which are small. Compiled for
// every instruction set of the machine's family, of which one is chosen at run time. Bits beyond the last element are
// 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace layercast {

constexpr std::size_t NumWords(std::size_t elements) { return (elements + 63) / 64; }

// Both hold as many elements of `element_bytes` (1, 2 or 4), at any address; `words` has NumWords of them. Returns how
// many differ.
std::size_t ChangedBits(std::span<const std::byte> base, std::span<const std::byte> next, std::size_t element_bytes,
                        std::span<std::uint64_t> words);

std::size_t CountBits(std::span<const std::uint64_t> words);

// Lists the numbers of the bits that are set, in order, and returns how many. `positions` has room for as many, and for
// kListSlack more, which are written to.
inline constexpr std::size_t kListSlack = 4;
std::size_t ListBits(std::span<const std::uint64_t> words, std::uint32_t* positions);

// The elements whose bits without the sign are less than `threshold`.
void SmallBits(std::span<const std::byte> elements, std::size_t element_bytes, std::uint32_t threshold,
               std::span<std::uint64_t> words);

}  // namespace layercast
