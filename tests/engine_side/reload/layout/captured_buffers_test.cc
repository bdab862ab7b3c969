#include "layercast/captured_buffers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "layercast/error.h"

namespace layercast {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class CapturedBuffersTest : public ::testing::Test {
 protected:
  CapturedBuffersTest() {
    for (std::size_t i = 0; i < memory_.size(); ++i) memory_[i] = static_cast<std::byte>(i);
  }
  CapturedBuffer Make(std::string name, std::size_t offset, Shape shape, std::vector<std::int64_t> strides = {}) {
    return {.name = std::move(name),
            .address = memory_.data() + offset,
            .dtype = DType::kU8,
            .shape = std::move(shape),
            .strides = std::move(strides),
            .device = {}};
  }
  std::vector<std::byte> memory_ = std::vector<std::byte>(64);
};

TEST_F(CapturedBuffersTest, ReadsStridedBuffersRowMajor) {
  const auto table =
      CapturedBuffers::Adopt({Make("column_major", 0, {2, 3}, {1, 2}), Make("rows", 16, {2, 2}, {8, 1})});
  const auto at = [](std::initializer_list<int> values) {
    std::vector<std::byte> bytes;
    for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
    return bytes;
  };
  EXPECT_EQ(table.Read(*table.Find("column_major")), at({0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(table.Read(*table.Find("rows")), at({16, 17, 24, 25}));
  EXPECT_EQ(table.Find("absent"), nullptr);
}

TEST_F(CapturedBuffersTest, ServedDigestSeesEveryByteAndName) {
  const auto digest = [&] { return CapturedBuffers::Adopt({Make("a", 0, {2, 2}, {8, 1})}).ServedDigest(); };
  const Digest before = digest();
  memory_[4] = std::byte{99};  // between the rows
  EXPECT_EQ(digest(), before);
  memory_[9] = std::byte{99};
  EXPECT_NE(digest(), before);
  EXPECT_NE(CapturedBuffers::Adopt({Make("b", 0, {2, 2}, {8, 1})}).ServedDigest(), digest());
}

// Here or in a build without CUDA: as soon as they are handed over.
TEST_F(CapturedBuffersTest, RefusesBuffersOnADeviceThatIsNotThere) {
  CapturedBuffer far = Make("far", 0, {4});
  far.device = {Device::Kind::kCuda, 999};
  EXPECT_THAT([&] { CapturedBuffers::Adopt({far}); }, ThrowsMessage<Error>(HasSubstr("CUDA device 999: ")));
}

TEST_F(CapturedBuffersTest, RefusesABufferThatMoved) {
  std::vector<CapturedBuffer> now = {Make("a", 0, {4}), Make("b", 8, {4})};
  const auto table = CapturedBuffers::Adopt(now, [&now] { return now; });
  EXPECT_NO_THROW(table.CheckUnmoved());
  now[1].address += 1;
  EXPECT_THAT([&] { table.CheckUnmoved(); }, ThrowsMessage<Error>(HasSubstr("'b'")));
}

TEST_F(CapturedBuffersTest, TableDigestCoversAddressesAndStrides) {
  const Digest digest = CapturedBuffers::Adopt({Make("a", 0, {2, 2})}).TableDigest();
  EXPECT_EQ(CapturedBuffers::Adopt({Make("a", 0, {2, 2})}).TableDigest(), digest);
  EXPECT_NE(CapturedBuffers::Adopt({Make("a", 1, {2, 2})}).TableDigest(), digest);
  EXPECT_NE(CapturedBuffers::Adopt({Make("a", 0, {2, 2}, {4, 1})}).TableDigest(), digest);
}

TEST_F(CapturedBuffersTest, RefusesWhatCannotBeWrittenSafely) {
  const auto refused = [&](std::vector<CapturedBuffer> buffers, const char* why) {
    EXPECT_THAT([&] { CapturedBuffers::Adopt(buffers); }, ThrowsMessage<Error>(HasSubstr(why)));
  };
  refused({Make("a", 0, {4}), Make("a", 8, {4})}, "named twice");
  refused({Make("a", 0, {4}), Make("b", 3, {4})}, "'b': its bytes overlap those of 'a'");
  refused({Make("a", 0, {4, 4}, {1})}, "expected 2 strides");
  refused({Make("a", 0, {2, 4}, {0, 1})}, "strides [0, 1] lay elements of shape [2, 4] over each other");
  refused({Make("a", 0, {4, 4}, {3, 1})}, "over each other");
  refused({Make("a", 0, {2, 3, 2}, {5, 1, 3})}, "over each other");
  refused({Make("a", 0, {3, 2}, {std::int64_t{1} << 62, 1})},
          "strides [4611686018427387904, 1] reach beyond any memory");
  refused({Make("a", 8, {4}, {-1})}, "backwards");
  CapturedBuffer null = Make("a", 0, {4});
  null.address = nullptr;
  refused({null}, "null");
}

// The same number is an address of one device's memory and of the host's.
TEST_F(CapturedBuffersTest, BuffersOfADeviceOverlapEachOtherWhateverTheHostHasBetweenThem) {
  const auto on_device = [](CapturedBuffer buffer) {
    buffer.device = {Device::Kind::kCuda, 999};
    return buffer;
  };
  const CapturedBuffer host = Make("host", 2, {4});
  EXPECT_THAT([&] { CapturedBuffers::Adopt({on_device(Make("a", 0, {8})), host, on_device(Make("b", 4, {8}))}); },
              ThrowsMessage<Error>(HasSubstr("'b': its bytes overlap those of 'a'")));
  EXPECT_THAT([&] { CapturedBuffers::Adopt({on_device(Make("a", 0, {8})), host}); },
              ThrowsMessage<Error>(HasSubstr("CUDA device 999: ")));  // they do not overlap
}

}  // namespace
}  // namespace layercast
