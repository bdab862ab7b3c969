#include "src/checkpoint/read_ahead.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>

#include "layercast/error.h"

namespace layercast {
namespace {

// Counts how many bytes of tensors are alive.
class Reader {
 public:
  NamedTensor Read(std::size_t index, std::uint64_t bytes) {
    const std::uint64_t now = alive_.fetch_add(bytes) + bytes;
    std::uint64_t most = most_.load();
    while (most < now && !most_.compare_exchange_weak(most, now)) {
    }
    const std::shared_ptr<const void> owner(this, [this, bytes](const void*) { alive_.fetch_sub(bytes); });
    return {.name = std::to_string(index), .tensor = {}, .owner = owner};
  }
  std::uint64_t most() const { return most_; }

 private:
  std::atomic<std::uint64_t> alive_{0};
  std::atomic<std::uint64_t> most_{0};
};

TEST(ReadAhead, GivesEveryTensorInOrderAndKeepsToItsWindow) {
  Reader reader;
  std::vector<std::uint64_t> bytes;
  for (std::uint64_t i = 0; i < 500; ++i) bytes.push_back(1 + i * 7 % 40);
  ReadAhead ahead(bytes, [&](std::size_t i) { return reader.Read(i, bytes[i]); }, /*threads=*/4, /*window_bytes=*/64);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::optional<NamedTensor> tensor = ahead.Next();
    ASSERT_TRUE(tensor);
    EXPECT_EQ(tensor->name, std::to_string(i));
  }
  EXPECT_FALSE(ahead.Next());
  EXPECT_FALSE(ahead.Next());
  EXPECT_LE(reader.most(), 64U + 40U);  // the window, and the one that the loop above holds
}

TEST(ReadAhead, ReadsSeveralAtOnce) {
  std::promise<void> second_began;
  ReadAhead ahead(
      {1, 1},
      [&](std::size_t i) -> NamedTensor {
        if (i == 0) second_began.get_future().wait();  // for ever, if they came one after the other
        if (i == 1) second_began.set_value();
        return {.name = std::to_string(i), .tensor = {}, .owner = nullptr};
      },
      /*threads=*/2, /*window_bytes=*/2);
  EXPECT_EQ(ahead.Next()->name, "0");
  EXPECT_EQ(ahead.Next()->name, "1");
}

TEST(ReadAhead, ATensorLargerThanTheWindowIsReadAlone) {
  Reader reader;
  ReadAhead ahead(
      {100, 100, 100}, [&](std::size_t i) { return reader.Read(i, 100); },
      /*threads=*/3, /*window_bytes=*/1);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(ahead.Next());
  EXPECT_LE(reader.most(), 200U);
}

TEST(ReadAhead, AnErrorComesInItsPlace) {
  ReadAhead ahead(
      {1, 1, 1},
      [](std::size_t i) -> NamedTensor {
        if (i == 1) throw Error(ErrorCode::kCorrupt, "tensor 1");
        return {.name = std::to_string(i), .tensor = {}, .owner = nullptr};
      },
      /*threads=*/3, /*window_bytes=*/100);
  EXPECT_EQ(ahead.Next()->name, "0");
  EXPECT_THROW(ahead.Next(), Error);
  EXPECT_FALSE(ahead.Next());
}

TEST(ReadAhead, MayBeLeftInTheMiddle) {
  Reader reader;
  std::vector<std::uint64_t> bytes(100, 1);
  ReadAhead ahead(bytes, [&](std::size_t i) { return reader.Read(i, 1); }, /*threads=*/4, /*window_bytes=*/10);
  EXPECT_TRUE(ahead.Next());
}

}  // namespace
}  // namespace layercast
