// Messages whose bytes are described once. `Fields(archive, message)`, which stands beside a message, visits its fields
// in the order of their bytes; the archive is a writer, or a reader, which trusts nothing. So the two cannot differ.
// Used by frames, by the messages of channels, and by manifests.
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/base/bytes/bytes.h"

namespace layercast {

// How Fields takes a message: `void Fields(auto& archive, Is<Hello> auto& hello)`. It is const where it is written.
template <typename T, typename Message>
concept Is = std::same_as<std::remove_const_t<T>, Message>;

// Value; one thread only. It writes what it is given: that this is right is up to callers, and refused by readers.
class ArchiveWriter : public ByteWriter {
 public:
  static constexpr bool kReads = false;

  void Number(std::unsigned_integral auto value, std::string_view /*field*/) { Put(value); }
  void Float(float value, std::string_view /*field*/) { Put(std::bit_cast<std::uint32_t>(value)); }
  void Array(const auto& bytes, std::string_view /*field*/) { PutBytes(std::as_bytes(std::span(bytes))); }
  void Bytes(const auto& bytes, std::size_t /*count*/, std::string_view field) { Array(bytes, field); }
  void Set(const auto& /*field*/, const auto& /*value*/) {}
  void Refuse(const std::string& /*message*/) {}
  std::size_t remaining() const { return std::numeric_limits<std::size_t>::max(); }  // there is always room
};

// Value; one thread only; the bytes are borrowed. All that reads throws kCorrupt.
class ArchiveReader : public ByteReader {
 public:
  static constexpr bool kReads = true;
  using ByteReader::ByteReader;

  void Number(std::unsigned_integral auto& value, std::string_view field) {
    value = Get<std::remove_reference_t<decltype(value)>>(field);
  }
  void Float(float& value, std::string_view field) { value = std::bit_cast<float>(Get<std::uint32_t>(field)); }
  // The bytes of an array of a fixed size.
  void Array(auto& bytes, std::string_view field) {
    const auto into = std::as_writable_bytes(std::span(bytes));
    std::ranges::copy(GetBytes(into.size(), field), into.begin());
  }
  // The bytes of a string or a vector, which has `count` of them.
  void Bytes(auto& bytes, std::size_t count, std::string_view field) {
    const std::span<const std::byte> raw = GetBytes(count, field);
    const auto* const begin = reinterpret_cast<decltype(std::as_const(bytes).data())>(raw.data());
    bytes.assign(begin, begin + raw.size());
  }
  // For a field whose bytes were visited as another variable.
  void Set(auto& field, auto&& value) { field = std::forward<decltype(value)>(value); }
  // For what is wrong with what was visited last.
  [[noreturn]] void Refuse(const std::string& message) const { Fail(message); }
};

// ---- what fields have in common, for both archives ------------------------------------------------------------------

// A field that is an unsigned `Number` in the bytes: an enumeration, a signed number.
template <std::unsigned_integral Number>
void As(auto& archive, auto& value, std::string_view field) {
  auto number = static_cast<Number>(value);
  archive.Number(number, field);
  archive.Set(value, static_cast<std::remove_cvref_t<decltype(value)>>(number));
}

// How many items follow.
template <std::unsigned_integral Number>
std::size_t Count(auto& archive, const auto& items, std::string_view field) {
  auto count = static_cast<Number>(items.size());
  archive.Number(count, field);
  return count;
}

// Bytes of text behind their number, of which errors speak as `length`.
template <std::unsigned_integral Number>
void Text(auto& archive, auto& text, std::string_view length, std::string_view field) {
  constexpr std::size_t kMost = std::numeric_limits<Number>::max();
  if (text.size() > kMost) {
    throw Error(ErrorCode::kInvalidArgument, "message: " + std::string(field) + ": expected at most " +
                                                 std::to_string(kMost) + " bytes, got " + std::to_string(text.size()));
  }
  archive.Bytes(text, Count<Number>(archive, text, length), field);
}

// `count` items. However large a number is read, no more memory is taken for items to come than the bytes that are
// left.
template <typename Archive, typename Items>
void Each(Archive& archive, Items& items, std::size_t count, const auto& visit) {
  if constexpr (Archive::kReads) {
    items.reserve(std::min(count, archive.remaining() / sizeof(typename Items::value_type)));
    for (std::size_t i = 0; i < count; ++i) visit(items.emplace_back());
  } else {
    for (auto& item : items) visit(item);
  }
}

// Items behind their number. `least_bytes` is the size of the smallest possible one: a number of items that the rest
// cannot hold is refused before anything is allocated.
template <std::unsigned_integral Number>
void List(auto& archive, auto& items, std::size_t least_bytes, std::string_view field, const auto& visit) {
  const std::size_t count = Count<Number>(archive, items, field);
  if (count > archive.remaining() / least_bytes) {
    archive.Refuse(std::string(field) + ": " + std::to_string(count) + " of them do not fit in the " +
                   std::to_string(archive.remaining()) + " bytes that are left");
  }
  Each(archive, items, count, visit);
}

template <typename Message>
std::vector<std::byte> Encode(const Message& message) {
  ArchiveWriter writer;
  Fields(writer, message);
  return std::move(writer).Take();
}

// Throws kCorrupt on anything but a whole message and nothing after it. `subject` opens its errors.
template <typename Message>
Message Decode(std::span<const std::byte> bytes, std::string subject = Message::kName) {
  ArchiveReader reader(std::move(subject), bytes);
  Message message;
  Fields(reader, message);
  reader.ExpectEnd();
  return message;
}

}  // namespace layercast
