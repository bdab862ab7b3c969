#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "src/base/memory/counting_memory.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

TEST(CountingMemory, KnowsNowAndPeak) {
  HostMemory host;
  CountingMemory counting(host);
  {
    const Buffer first(counting, 100);
    { const Buffer second(counting, 50); }
    EXPECT_EQ(counting.current_bytes(), 100U);
  }
  EXPECT_EQ(counting.current_bytes(), 0U);
  EXPECT_EQ(counting.peak_bytes(), 150U);
}

TEST(Buffer, MovesItsMemory) {
  HostMemory host;
  CountingMemory counting(host);
  Buffer first(counting, 10);
  const std::byte* address = first.data();
  Buffer second(std::move(first));
  EXPECT_EQ(second.data(), address);
  second = Buffer();
  EXPECT_EQ(counting.current_bytes(), 0U);
}

TEST(Buffer, OfAResourceThatGivesNothingIsAnError) {
  class Nothing final : public MemoryResource {
    std::byte* Allocate(std::size_t /*bytes*/) override { return nullptr; }
    void Deallocate(std::byte* /*address*/, std::size_t /*bytes*/) noexcept override {}
  } nothing;
  EXPECT_THAT(testing::ErrorOf([&] { const Buffer buffer(nothing, 10); }, ErrorCode::kResourceExhausted),
              ::testing::HasSubstr("gave none of 10 bytes"));
  EXPECT_EQ(Buffer(nothing, 0).size(), 0U);
}

TEST(FillingMemory, FillsWhatItHandsOut) {
  HostMemory host;
  FillingMemory filling(host, std::byte{0xA5});
  const Buffer buffer(filling, 3);
  EXPECT_EQ(buffer.data()[2], std::byte{0xA5});
}

}  // namespace
}  // namespace layercast
