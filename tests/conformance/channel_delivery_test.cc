// Conformance: whatever is asked for arrives, byte for byte as a slow and obvious copy gives it.
#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <thread>

#include "tests/conformance/channel_fixture.h"
#include "tests/conformance/tcp_traffic.h"

namespace layercast::test {
namespace {

class ChannelDelivery : public Channel {};
INSTANTIATE_TEST_SUITE_P(Every, ChannelDelivery, ::testing::ValuesIn(TransportNames()),
                         [](const auto& test) { return test.param; });

constexpr std::array<std::size_t, 6> kSizes{100'000, 1, 0, 4097, 65'536, 333'333};

Region RandomRegion(std::mt19937& random) {
  const auto below = [&](std::uint64_t limit) { return random() % limit; };
  Region region;
  region.tensor = static_cast<std::uint32_t>(below(kSizes.size()));
  const std::uint64_t size = kSizes[region.tensor];
  region.offset = below(size + 1);
  region.row_bytes = below(std::min<std::uint64_t>(size - region.offset, 2000) + 1);
  region.stride = region.row_bytes + below(100);
  region.rows = 1;
  while (region.rows < 20 && region.offset + region.rows * region.stride + region.row_bytes <= size) ++region.rows;
  return region;
}

TEST_P(ChannelDelivery, BringsAnySchedule) {
  const PublishedBytes published(*publisher_, 7, kSizes);
  const auto receiver = Connect();
  std::mt19937 random(20);
  for (int round = 0; round < 10; ++round) {
    std::map<std::uint64_t, Fetch> under_way;
    for (std::uint64_t ticket = 0; ticket < 8; ++ticket) {
      std::vector<Region> regions(random() % 12);
      for (Region& region : regions) region = RandomRegion(random);
      under_way.emplace(ticket, Fetch(regions)).first->second.Submit(*receiver, ticket, 7);
    }
    while (!under_way.empty()) {
      const auto completion = receiver->Poll(Deadline::After(kPatience));
      ASSERT_TRUE(completion);
      ASSERT_EQ(under_way.count(completion->ticket), 1U);
      EXPECT_TRUE(under_way.at(completion->ticket).IsRight(*completion));
      under_way.erase(completion->ticket);
    }
    EXPECT_FALSE(receiver->Poll(Deadline::After(kPatience)));
  }
}

TEST_P(ChannelDelivery, BringsNothingAndSingleBytes) {
  const PublishedBytes published(*publisher_, 1, kSizes);
  const auto receiver = Connect();
  const std::vector<std::vector<Region>> chunks = {
      {},                                                        // no region at all
      {{0, 0, 0, 0, 0}, {2, 0, 0, 1, 0}},                        // empty regions, one of them in an empty tensor
      {{0, 100'000, 0, 1, 0}},                                   // an empty region, at the tensor's end
      {{1, 0, 1, 1, 1}},                                         // a whole tensor of one byte
      {{0, 99'999, 1, 1, 1}, {2, 0, 0, 1, 0}, {4, 0, 1, 1, 1}},  // last byte, nothing, first byte
      {{0, 3, 1, 1000, 97}},                                     // a column of single bytes
  };
  for (const auto& regions : chunks) {
    Fetch fetch(regions);
    EXPECT_TRUE(fetch.IsRight(FetchOne(*receiver, 1, fetch)));
  }
}

TEST_P(ChannelDelivery, BringsMisalignedAndStridedRows) {
  const PublishedBytes published(*publisher_, 1, kSizes);
  const auto receiver = Connect();
  Fetch misaligned({{0, 1, 77'777, 1, 77'777}, {5, 63, 300'001, 1, 300'001}, {3, 4095, 2, 1, 2}});
  EXPECT_TRUE(misaligned.IsRight(FetchOne(*receiver, 1, misaligned)));
  Fetch strided({{0, 5, 100, 500, 200}, {5, 1, 1000, 300, 1111}, {4, 0, 256, 256, 256}});
  EXPECT_TRUE(strided.IsRight(FetchOne(*receiver, 1, strided)));
}

TEST_P(ChannelDelivery, BringsChunksOfMoreThanFourMebibytes) {
  constexpr std::array<std::size_t, 2> sizes{5'000'011, 5'300'000};
  const PublishedBytes published(*publisher_, 1, sizes);
  const auto receiver = Connect();
  Fetch contiguous({{0, 3, 5'000'008, 1, 5'000'008}});
  EXPECT_TRUE(contiguous.IsRight(FetchOne(*receiver, 1, contiguous)));
  Fetch strided({{1, 0, 10'000, 500, 10'600}, {0, 17, 1'000'000, 1, 1'000'000}, {1, 5'299'999, 1, 1, 1}});
  EXPECT_TRUE(strided.IsRight(FetchOne(*receiver, 1, strided)));
}

TEST_P(ChannelDelivery, GoesOnAfterARestWithWhatIsOfferedThenAndWithNothingOfBefore) {
  const auto receiver = Connect();
  Fetch fetch({{0, 3, 10'000, 1, 10'000}, {5, 1, 1000, 300, 1111}});
  {
    const PublishedBytes before(*publisher_, 7, kSizes);
    EXPECT_TRUE(fetch.IsRight(FetchOne(*receiver, 7, fetch)));
    if (!receiver->Rest()) return;  // this channel connects anew for every session
  }
  const PublishedBytes now(*publisher_, 8, kSizes);
  ASSERT_TRUE(receiver->Resume());
  EXPECT_FALSE(receiver->Poll(Deadline::After(kPatience)));
  EXPECT_TRUE(fetch.IsRight(FetchOne(*receiver, 8, fetch)));
  ExpectError(ErrorCode::kNotFound, publisher_->address(), [&] { FetchOne(*receiver, 7, fetch); });
}

TEST_P(ChannelDelivery, DoesNotRestWhileSomethingIsUnderWay) {
  const PublishedBytes published(*publisher_, 7, kSizes);
  const auto receiver = Connect();
  Fetch fetch({{0, 3, 90'000, 1, 90'000}});
  fetch.Submit(*receiver, 1, 7);
  EXPECT_FALSE(receiver->Rest());
  const auto completion = receiver->Poll(Deadline::After(kPatience));
  ASSERT_TRUE(completion);
  EXPECT_TRUE(fetch.IsRight(*completion));
}

TEST_P(ChannelDelivery, DoesNotGoOnAfterARestWithAPublisherThatHasEnded) {
  const auto receiver = Connect();
  if (!receiver->Rest()) return;
  publisher_.reset();
  const Deadline soon = Deadline::After(kPatience);
  while (receiver->Resume() && !soon.Passed()) ASSERT_TRUE(receiver->Rest());
  EXPECT_FALSE(soon.Passed());
}

// For ucx over shared memory nothing below the channel counts bytes: ucx_hostile_test.cc counts there what comes to a
// receiver.
TEST_P(ChannelDelivery, MovesWhatWasAskedForAndAThousandthOfItAtMost) {
  constexpr std::array<std::size_t, 2> sizes{5'000'000, 5'300'000};
  const PublishedBytes published(*publisher_, 1, sizes);
  const auto receiver = Connect();
  const std::string lane = receiver->lane();
  const bool over_tcp = GetParam() == "zmq" || lane.starts_with("tcp/");
  std::vector<Fetch> fetches;
  for (const std::vector<Region>& regions : std::vector<std::vector<Region>>{
           {{0, 3, 4'000'000, 1, 4'000'000}},  // most of a tensor
           {{1, 5000, 5000, 500, 10'600},
            {0, 0, 900, 1500, 3000}},     // a half or a third of each row: what lies between is not sent
           {{1, 0, 10, 100'000, 50}}}) {  // very short rows
    fetches.emplace_back(regions);
  }
  std::uint64_t asked = 0;
  const std::uint64_t before = SentOverTcp();
  const std::uint64_t moved_before = counted_.moved ? counted_.moved() : 0;
  for (Fetch& fetch : fetches) {
    EXPECT_TRUE(fetch.IsRight(FetchOne(*receiver, 1, fetch)));
    asked += fetch.destination.size();
  }
  const std::uint64_t sent = SentOverTcp() - before;
  EXPECT_GE(sent, over_tcp ? asked : 0) << lane;
  EXPECT_LE(sent, (over_tcp ? asked : 0) + asked / 1000) << lane;
  if (counted_.moved) {
    EXPECT_EQ(counted_.moved() - moved_before, asked) << lane;
  }
}

TEST_P(ChannelDelivery, HasManyChunksUnderWayAtOnce) {
  const PublishedBytes published(*publisher_, 1, kSizes);
  const auto receiver = Connect();
  std::vector<Fetch> fetches;
  for (std::uint64_t i = 0; i < 200; ++i) fetches.emplace_back(std::vector<Region>{{5, i * 100, 20'000, 1, 20'000}});
  for (std::uint64_t i = 0; i < fetches.size(); ++i) fetches[i].Submit(*receiver, i, 1);
  std::vector<bool> seen(fetches.size());
  for (std::size_t count = 0; count < fetches.size(); ++count) {
    const auto completion = receiver->Poll(Deadline::After(kPatience));
    ASSERT_TRUE(completion);
    EXPECT_FALSE(seen.at(completion->ticket));
    seen[completion->ticket] = true;
    EXPECT_TRUE(fetches[completion->ticket].IsRight(*completion));
  }
}

TEST_P(ChannelDelivery, ServesSeveralReceiversAndOffersAtOnce) {
  const PublishedBytes first(*publisher_, 1, kSizes, 100);
  const PublishedBytes second(*publisher_, 2, kSizes, 200);
  std::vector<std::jthread> receivers;
  for (int number = 0; number < 4; ++number) {
    receivers.emplace_back([&, number] {
      const auto receiver = Connect();
      for (int i = 0; i < 20; ++i) {
        const bool which = (i + number) % 2 == 0;
        Fetch fetch({{0, static_cast<std::uint64_t>(i), 90'000, 1, 90'000}, {5, 0, 111, 300, 1111}});
        EXPECT_TRUE(fetch.IsRight(FetchOne(*receiver, which ? 1 : 2, fetch), which ? 100 : 200));
      }
    });
  }
}

TEST_P(ChannelDelivery, ASlowReaderHoldsNobodyUp) {
  constexpr std::array<std::size_t, 1> sizes{3 << 20};
  const PublishedBytes published(*publisher_, 1, sizes);
  const auto slow = Connect();
  std::vector<Fetch> fetches;
  for (std::uint64_t i = 0; i < 8; ++i) fetches.emplace_back(std::vector<Region>{{0, i, 3'000'000, 1, 3'000'000}});
  for (std::uint64_t i = 0; i < fetches.size(); ++i) fetches[i].Submit(*slow, i, 1);
  {
    const auto quick = Connect();
    Fetch fetch({{0, 1, 2'000'000, 1, 2'000'000}});
    EXPECT_TRUE(fetch.IsRight(FetchOne(*quick, 1, fetch)));
  }
  for (std::size_t i = 0; i < fetches.size(); ++i) {
    const auto completion = slow->Poll(Deadline::After(kPatience));
    ASSERT_TRUE(completion);
    if (i % 4 == 0) {
      EXPECT_TRUE(fetches.at(completion->ticket).IsRight(*completion));
    }
  }
}

TEST_P(ChannelDelivery, AnOfferMayComeBackWithOtherBytes) {
  const auto receiver = Connect();
  for (std::uint64_t round = 0; round < 5; ++round) {
    const PublishedBytes published(*publisher_, 1, kSizes, round);
    Fetch fetch({{0, 0, 100'000, 1, 100'000}});
    EXPECT_TRUE(fetch.IsRight(FetchOne(*receiver, 1, fetch), round));
  }
}

TEST_P(ChannelDelivery, OffersMayLeaveTensorsOut) {
  PublishedBytes published(*publisher_, 1, kSizes);
  Offer partial{2, published.tensors()};
  partial.tensors[0] = {};
  publisher_->Add(partial);
  {
    const auto receiver = Connect();
    Fetch there({{5, 0, 1000, 1, 1000}, {0, 0, 0, 1, 0}});
    EXPECT_TRUE(there.IsRight(FetchOne(*receiver, 2, there)));
    Fetch left_out({{0, 0, 1, 1, 1}});
    ExpectError(ErrorCode::kInvalidArgument, publisher_->address(), [&] { FetchOne(*receiver, 2, left_out); });
  }
  publisher_->Remove(2);
}

}  // namespace
}  // namespace layercast::test
