#include "src/base/bytes/archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "tests/support/hex.h"

namespace layercast {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

enum class Colour : std::uint8_t { kRed, kGreen, kBlue };

struct Sketch {
  static constexpr const char* kName = "sketch";
  std::uint32_t number = 0;
  std::int64_t offset = 0;
  float scale = 0;
  Colour colour = Colour::kRed;
  std::array<std::byte, 2> mark{};
  std::string title;
  std::vector<std::uint16_t> points;
  bool operator==(const Sketch&) const = default;
};

void Fields(auto& archive, Is<Sketch> auto& sketch) {
  archive.Number(sketch.number, "number");
  As<std::uint64_t>(archive, sketch.offset, "offset");
  archive.Float(sketch.scale, "scale");
  auto colour = static_cast<std::uint8_t>(sketch.colour);
  archive.Number(colour, "colour");
  if (colour > 2) archive.Refuse("colour " + std::to_string(colour));
  archive.Set(sketch.colour, static_cast<Colour>(colour));
  archive.Array(sketch.mark, "mark");
  Text<std::uint8_t>(archive, sketch.title, "title's length", "title");
  List<std::uint16_t>(archive, sketch.points, 2, "points", [&](auto& point) { archive.Number(point, "point"); });
}

Sketch Some() { return {7, -2, 1.5F, Colour::kBlue, {std::byte{0xAA}, std::byte{0xBB}}, "cat", {1, 0x0203}}; }

TEST(Archive, WritesFieldsInTheOrderInWhichTheyAreVisited) {
  EXPECT_EQ(test::Hex(Encode(Some())),
            "07000000"
            "feffffffffffffff"
            "0000c03f"
            "02"
            "aabb"
            "03636174"
            "020001000302");
}

TEST(Archive, ReadsWhatItHasWritten) { EXPECT_EQ(Decode<Sketch>(Encode(Some())), Some()); }

TEST(Archive, RefusesWhatIsCutShortOrTooLongNamingMessageAndField) {
  std::vector<std::byte> bytes = Encode(Some());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(Decode<Sketch>(std::span(bytes).first(size)), Error) << size;
  }
  EXPECT_THAT([&] { Decode<Sketch>(std::span(bytes).first(6)); },
              ThrowsMessage<Error>(HasSubstr("sketch: at byte 4: expected 8 bytes for offset, got 2")));
  bytes.push_back(std::byte{0});
  EXPECT_THAT([&] { Decode<Sketch>(bytes, "it"); },
              ThrowsMessage<Error>(HasSubstr("it: at byte 29: expected the end")));
}

TEST(Archive, RefusesWhatFieldsRefuseButWritesIt) {
  Sketch wrong = Some();
  wrong.colour = static_cast<Colour>(9);
  const std::vector<std::byte> bytes = Encode(wrong);
  EXPECT_THAT([&] { Decode<Sketch>(bytes); }, ThrowsMessage<Error>(HasSubstr("sketch: at byte 17: colour 9")));
}

TEST(Archive, RefusesANumberOfItemsThatTheRestCannotHold) {
  std::vector<std::byte> bytes = Encode(Some());
  bytes[23] = bytes[24] = std::byte{0xFF};
  EXPECT_THAT([&] { Decode<Sketch>(bytes); },
              ThrowsMessage<Error>(HasSubstr("points: 65535 of them do not fit in the 4 bytes that are left")));
}

TEST(Archive, DoesNotWriteATextWhoseLengthHasNoRoom) {
  Sketch sketch = Some();
  sketch.title.assign(256, 'x');
  EXPECT_THAT([&] { Encode(sketch); },
              ThrowsMessage<Error>(HasSubstr("message: title: expected at most 255 bytes, got 256")));
}

// Takes no memory for items that are only promised.
TEST(Archive, ReadsItemsOneByOne) {
  const std::vector<std::byte> bytes(40);
  ArchiveReader reader("items", bytes);
  std::vector<std::uint64_t> items;
  const auto read = [&] {
    Each(reader, items, std::size_t{1} << 60, [&](auto& item) { reader.Number(item, "item"); });
  };
  EXPECT_THAT(read, ThrowsMessage<Error>(HasSubstr("items: at byte 40: expected 8 bytes for item, got 0")));
  EXPECT_LE(items.capacity(), 16U);
}

}  // namespace
}  // namespace layercast
