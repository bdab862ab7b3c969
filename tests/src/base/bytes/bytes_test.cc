#include "src/base/bytes/bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layercast/error.h"

namespace layercast {
namespace {

TEST(Bytes, AreLittleEndian) {
  ByteWriter out;
  out.Put(std::uint32_t{0x01020304});
  out.PutBytes("ab");
  EXPECT_THAT(out.bytes(), testing::ElementsAre(std::byte{4}, std::byte{3}, std::byte{2}, std::byte{1}, std::byte{'a'},
                                                std::byte{'b'}));
}

TEST(Bytes, OfSeveralFieldsFollowEachOther) {
  ByteWriter together, apart;
  together.Put(std::uint32_t{0x01020304}, std::uint8_t{5}, std::uint64_t{0x060708090A0B0C0D}, std::uint16_t{0x0E0F});
  apart.Put(std::uint32_t{0x01020304});
  apart.Put(std::uint8_t{5});
  apart.Put(std::uint64_t{0x060708090A0B0C0D});
  apart.Put(std::uint16_t{0x0E0F});
  EXPECT_THAT(together.bytes(), testing::ElementsAreArray(apart.bytes()));
}

TEST(Bytes, ComeBackAsTheyWentIn) {
  ByteWriter out;
  out.Put(std::uint8_t{0xFE});
  out.Put(std::uint64_t{0x8000000000000001});
  out.PutBytes("text");
  ByteReader in("test", out.bytes());
  EXPECT_EQ(in.Get<std::uint8_t>("a"), 0xFE);
  EXPECT_EQ(in.Get<std::uint64_t>("b"), 0x8000000000000001);
  EXPECT_EQ(in.GetText(4, "c"), "text");
  EXPECT_NO_THROW(in.ExpectEnd());
}

TEST(Bytes, AReadPastTheEndNamesSubjectPlaceAndField) {
  ByteWriter out;
  out.Put(std::uint32_t{7});
  ByteReader in("frame", out.bytes());
  in.Get<std::uint16_t>("kind");
  try {
    in.Get<std::uint64_t>("the length");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
    EXPECT_STREQ(error.what(), "frame: at byte 2: expected 8 bytes for the length, got 2");
  }
  EXPECT_THROW(in.ExpectEnd(), Error);
  EXPECT_THROW(in.GetBytes(static_cast<std::size_t>(-1), "everything"), Error);
}

}  // namespace
}  // namespace layercast
