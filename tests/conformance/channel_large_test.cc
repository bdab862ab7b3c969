// Conformance: nothing wraps if a tensor, a chunk or the distance between rows is larger than 32 bits can count. The
// cases that take so much real memory, and some minutes, run only with LAYERCAST_LARGE_TESTS=1.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "src/base/check.h"
#include "tests/conformance/channel_fixture.h"

namespace layercast::test {
namespace {

constexpr std::size_t kGibibyte = std::size_t{1} << 30;
constexpr std::size_t kLarge = 4 * kGibibyte + (1U << 20);
constexpr std::size_t kMarked = 4096;  // bytes that are marked around each place where something could go wrong

// Memory that costs nothing until it is written, and that reads as zeros.
class Untouched {
 public:
  explicit Untouched(std::size_t bytes)
      : bytes_(bytes),
        data_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    LAYERCAST_CHECK(data_ != MAP_FAILED);
  }
  ~Untouched() { ::munmap(data_, bytes_); }
  Untouched(const Untouched&) = delete;
  Untouched& operator=(const Untouched&) = delete;

  std::span<std::byte> span() const { return {static_cast<std::byte*>(data_), bytes_}; }

 private:
  const std::size_t bytes_;
  void* const data_;
};

bool MayBeLarge() { return std::getenv("LAYERCAST_LARGE_TESTS") != nullptr; }
constexpr const char* kWhyNot = "it takes up to 13 GiB of memory and a minute: LAYERCAST_LARGE_TESTS=1 runs it";

class ChannelLarge : public Channel {
 protected:
  // Publishes one tensor as offer 1. It is zero except where it is marked.
  void Publish() {
    if (publisher_->arena() != nullptr) {
      arena_ = Buffer(*publisher_->arena(), kLarge);
      tensor_ = arena_.span();
    } else {
      tensor_ = untouched_.span();
    }
    for (std::size_t at : {std::size_t{0}, kGibibyte, 2 * kGibibyte, 3 * kGibibyte, 4 * kGibibyte - kMarked,
                           4 * kGibibyte, kLarge - kMarked}) {
      for (std::size_t i = at; i < at + kMarked; ++i) tensor_[i] = PatternByte(1, 0, i);
    }
    publisher_->Add({1, {{tensor_.data(), tensor_.size()}}});
  }
  // Whether the channel holds a copy of the tensor, all of it in real memory.
  bool HoldsACopy() const { return publisher_->arena() != nullptr || GetParam().starts_with("cuda_ipc"); }
  void TearDown() override { publisher_->Remove(1); }

  Untouched untouched_{kLarge};
  Buffer arena_;
  std::span<std::byte> tensor_;
};
INSTANTIATE_TEST_SUITE_P(Every, ChannelLarge, ::testing::ValuesIn(TransportNames()),
                         [](const auto& test) { return test.param; });

TEST_P(ChannelLarge, RegionsLieBeyondFourGibibytes) {
  if (HoldsACopy() && !MayBeLarge()) GTEST_SKIP() << kWhyNot;
  Publish();
  const auto receiver = Connect();
  Fetch fetch({{0, 4 * kGibibyte - 5, 10, 1, 10},
               {0, 4 * kGibibyte + 77, 1000, 1, 1000},
               {0, 100, 64, 5, kGibibyte},
               {0, kLarge - 1, 1, 1, 1}});
  EXPECT_TRUE(fetch.IsRight(FetchOne(*receiver, 1, fetch), 1));
}

TEST_P(ChannelLarge, AChunkIsLongerThanFourGibibytes) {
  if (!MayBeLarge()) GTEST_SKIP() << kWhyNot;
  Publish();
  const auto receiver = Connect();
  const Untouched destination(kLarge);
  const std::vector<Region> whole = {{0, 0, kLarge, 1, kLarge}};
  receiver->Submit({.ticket = 1, .offer_id = 1, .regions = whole, .destination = destination.span()});
  const Deadline deadline = Deadline::After(3 * kPatience);
  std::optional<ChunkCompletion> completion;
  while (!completion && !deadline.Passed()) completion = receiver->Poll(deadline);
  ASSERT_TRUE(completion);
  ASSERT_EQ(completion->views.size(), 1U);
  ASSERT_EQ(completion->views.front().num_bytes(), kLarge);
  EXPECT_EQ(std::memcmp(completion->views.front().base, tensor_.data(), kLarge), 0);
}

}  // namespace
}  // namespace layercast::test
