// The steps of a delta, in the order of their elements: a byte each, or the byte 255 and the whole code, as wide as an
// element, in a list of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace layercast {

inline constexpr std::uint8_t kWideStep = 255;

// Value; borrows.
struct StepBytes {
  std::span<const std::byte> codes;
  std::span<const std::byte> wide;
};

// Value.
struct StepList {
  std::vector<std::byte> codes;
  std::vector<std::byte> wide;

  StepBytes view() const { return {codes, wide}; }
};

// Appends steps to a list that has room made for them. Value; borrows; one thread only.
template <class U>
class StepWriter {
 public:
  // At most `most` codes will be put.
  StepWriter(StepList& to, std::size_t most) : to_(to) {
    const std::size_t before = to.codes.size();
    to.codes.resize(before + most);
    at_ = to.codes.data() + before;
  }
  // The room that was not needed is given back.
  void Close() { to_.codes.resize(static_cast<std::size_t>(at_ - to_.codes.data())); }

  void Put(U code) {
    if (code < kWideStep) {
      *at_++ = static_cast<std::byte>(code);
      return;
    }
    *at_++ = std::byte{kWideStep};
    const auto* bytes = reinterpret_cast<const std::byte*>(&code);
    to_.wide.insert(to_.wide.end(), bytes, bytes + sizeof(U));
  }

 private:
  StepList& to_;
  std::byte* at_;
};

// Reads steps that were checked (CheckSteps). Value; borrows; one thread only.
template <class U>
class StepReader {
 public:
  explicit StepReader(const StepBytes& steps) : code_(steps.codes.data()), wide_(steps.wide.data()) {}

  U Next() {
    const auto code = std::to_integer<std::uint8_t>(*code_++);
    return code == kWideStep ? NextWide() : U{code};
  }

 private:
  U NextWide() {
    U code;
    std::memcpy(&code, wide_, sizeof(U));
    wide_ += sizeof(U);
    return code;
  }

  const std::byte* code_;
  const std::byte* wide_;
};

}  // namespace layercast
