// Little-endian fields in byte strings, for Layercast's own binary forms (manifest, wire). The reader trusts nothing:
// it never looks outside its bytes, and its errors say where it stopped and what it expected there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace layercast {

// Value; one thread only.
class ByteWriter {
 public:
  void Reserve(std::size_t bytes) { bytes_.reserve(bytes); }
  std::size_t size() const { return bytes_.size(); }

  // Appends one field, or several one after the other.
  template <typename... T>
  void Put(T... values) {
    static_assert((std::is_unsigned_v<T> && ...));
    std::array<std::byte, (sizeof(T) + ...)> raw;
    std::byte* end = raw.data();
    const auto put = [&end](auto value) {
      for (std::size_t i = 0; i < sizeof(value); ++i) {
        *end++ = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i));
      }
    };
    (put(values), ...);
    PutBytes(raw);
  }
  void PutBytes(std::span<const std::byte> raw);
  void PutBytes(std::string_view text);

  std::span<const std::byte> bytes() const { return bytes_; }
  std::vector<std::byte> Take() && { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Value; one thread only; the bytes are borrowed. Every error message begins with `subject` ("manifest").
class ByteReader {
 public:
  ByteReader(std::string subject, std::span<const std::byte> bytes) : subject_(std::move(subject)), bytes_(bytes) {}

  std::size_t position() const { return position_; }
  std::size_t remaining() const { return bytes_.size() - position_; }

  // Throws kCorrupt if fewer than sizeof(T) bytes are left. The message calls what was expected `field`.
  template <typename T>
  T Get(std::string_view field) {
    static_assert(std::is_unsigned_v<T>);
    const std::span<const std::byte> raw = GetBytes(sizeof(T), field);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) value |= std::to_integer<std::uint64_t>(raw[i]) << (8 * i);
    return static_cast<T>(value);
  }
  std::span<const std::byte> GetBytes(std::size_t count, std::string_view field);
  std::string GetText(std::size_t count, std::string_view field);
  // Throws kCorrupt if anything is left.
  void ExpectEnd() const;
  // Throws kCorrupt: "manifest: at byte 17: `message`".
  [[noreturn]] void Fail(const std::string& message) const;

 private:
  std::string subject_;
  std::span<const std::byte> bytes_;
  std::size_t position_ = 0;
};

}  // namespace layercast
