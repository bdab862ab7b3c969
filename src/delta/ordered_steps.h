// How an element's change is written: as a step between places in the order of floating-point numbers. Read as sign and
// magnitude, the bits of bf16, f16, f32 and FP8 are put in their order by a bijection, so that neighbours differ by
// one, -0 lies next to 0, and NaN keeps its payload. Steps are differences of places modulo 2^bits: they add, which is
// why deltas fold, and a step that was added can be taken back. For types that are no sign and magnitude (integers,
// packed FP4) the same bijection is as right, and only foretells less.
#pragma once

#include <cstddef>
#include <cstring>
#include <limits>
#include <type_traits>

namespace layercast {

template <class U>
inline constexpr U kSignBit = static_cast<U>(U{1} << (std::numeric_limits<U>::digits - 1));

// The place of these bits in the order.
template <class U>
constexpr U PlaceOf(U bits) {
  return static_cast<U>((bits & kSignBit<U>) != 0 ? ~bits : bits | kSignBit<U>);
}

template <class U>
constexpr U BitsAt(U place) {
  return static_cast<U>((place & kSignBit<U>) != 0 ? place ^ kSignBit<U> : ~place);
}

// Small steps, up or down, as small numbers: 0, -1, 1, -2, ... are 0, 1, 2, 3, ...
template <class U>
constexpr U Zigzag(U step) {
  return static_cast<U>((step << 1) ^ ((step & kSignBit<U>) != 0 ? std::numeric_limits<U>::max() : U{0}));
}

template <class U>
constexpr U Unzigzag(U code) {
  return static_cast<U>((code >> 1) ^ ((code & 1) != 0 ? std::numeric_limits<U>::max() : U{0}));
}

template <class U>
U LoadElement(const std::byte* bytes, std::size_t element) {
  U bits;
  std::memcpy(&bits, bytes + element * sizeof(U), sizeof(U));
  return bits;
}

template <class U>
void StoreElement(std::byte* bytes, std::size_t element, U bits) {
  std::memcpy(bytes + element * sizeof(U), &bits, sizeof(U));
}

// The zigzag code of the step from `before` to `after`.
template <class U>
constexpr U StepCode(U before, U after) {
  return Zigzag(static_cast<U>(PlaceOf(after) - PlaceOf(before)));
}

template <class U>
constexpr U Stepped(U bits, U code) {
  return BitsAt(static_cast<U>(PlaceOf(bits) + Unzigzag(code)));
}

template <class U>
constexpr U SteppedBack(U bits, U code) {
  return BitsAt(static_cast<U>(PlaceOf(bits) - Unzigzag(code)));
}

// Calls body(U) for the unsigned integer of so many bytes: 1, 2 or 4.
template <class Body>
auto ForElement(std::size_t element_bytes, const Body& body) {
  switch (element_bytes) {
    case 1: return body(std::type_identity<unsigned char>());
    case 2: return body(std::type_identity<unsigned short>());
    default: return body(std::type_identity<unsigned int>());
  }
}

}  // namespace layercast
