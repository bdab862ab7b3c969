#include "src/session/offer/stream_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "src/base/memory/counting_memory.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;

constexpr std::uint64_t kWindow = std::uint64_t{8} << 20;  // blocks of 1 MiB are shared

class OfferWatch final : public OfferingEnd {
 public:
  std::string address() const override { return ""; }
  bool copies() const override { return copying; }
  void Add(const Offer& offer) override { offers.insert(offer.id); }
  void Remove(std::uint64_t offer_id) override { offers.erase(offer_id); }

  bool copying = false;
  std::set<std::uint64_t> offers;
};

class StreamBlocksTest : public ::testing::Test {
 protected:
  StreamPlace Put(std::size_t bytes, std::uint64_t most = kWindow) {
    StreamPlace place = blocks_.Place("w", bytes, most);
    blocks_.Offer(place, bytes);
    return place;
  }

  WorkerPool pool_{1};
  FailPoints failpoints_;
  Outbox outbox_;
  HostMemory host_;
  CountingMemory memory_{host_};
  AskedSchedules asked_;
  OfferWatch end_;
  std::vector<OfferingEnd*> ends_ = {&end_};
  const ServeContext context_{.pool = pool_,
                              .failpoints = failpoints_,
                              .outbox = outbox_,
                              .arena = memory_,
                              .device = nullptr,
                              .ends = ends_,
                              .asked = asked_,
                              .take_offer_ids = {}};
  StreamBlocks blocks_{context_, 5};
};

TEST_F(StreamBlocksTest, SmallTensorsShareOneOfferWhichIsUsedAgain) {
  for (std::uint32_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(blocks_.HasRoom(100, kWindow));
    const StreamPlace place = Put(100);
    EXPECT_EQ(place.offer_id, 5U);
    EXPECT_EQ(place.offset, i * 128U);  // at the next cache line
  }
  EXPECT_EQ(blocks_.waiting(), 100U);
  blocks_.Retire(99);
  EXPECT_EQ(Put(100).offset, 100 * 128U);  // one of them waits still
  blocks_.Retire(101);
  EXPECT_EQ(blocks_.waiting(), 0U);
  EXPECT_EQ(Put(100).offset, 0U);
  EXPECT_THAT(end_.offers, ElementsAre(5));
}

TEST_F(StreamBlocksTest, ReceiptsForWhatWasNotPlacedCountForWhatWas) {
  Put(100);
  blocks_.Retire(1000);
  EXPECT_EQ(blocks_.waiting(), 0U);
  Put(100);
  EXPECT_EQ(blocks_.waiting(), 1U);
}

TEST_F(StreamBlocksTest, LargeTensorsHaveOffersOfTheirOwnWhichGoWithThem) {
  EXPECT_EQ(Put(500'000).offer_id, 5U);
  EXPECT_EQ(Put(500'000).offer_id, 6U);
  blocks_.Retire(1);
  EXPECT_THAT(end_.offers, ElementsAre(6));
  EXPECT_EQ(memory_.current_bytes(), 500'000U);
}

TEST_F(StreamBlocksTest, AWindowHasRoomForItsBytesOrForOneTensor) {
  EXPECT_TRUE(blocks_.HasRoom(100'000'000, 1000));
  Put(100'000'000, 1000);
  EXPECT_FALSE(blocks_.HasRoom(1, 1000));
  blocks_.Retire(1);
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(blocks_.HasRoom(100, 1000));
    Put(100, 1000);  // no block is shared in so small a window
  }
  EXPECT_FALSE(blocks_.HasRoom(1, 1000));
  EXPECT_EQ(end_.offers.size(), 10U);
}

TEST_F(StreamBlocksTest, AnIdleBlockGivesWayToALargeTensor) {
  Put(100);
  Put(7'500'000);
  blocks_.Retire(1);
  EXPECT_TRUE(blocks_.HasRoom(800'000, kWindow));  // once the first block is freed
  EXPECT_EQ(memory_.current_bytes(), 7'500'000U);
}

TEST_F(StreamBlocksTest, TheNumberOfTensorsThatWaitIsBounded) {
  for (std::size_t i = 0; i < StreamBlocks::kMostWaiting; ++i) {
    ASSERT_TRUE(blocks_.HasRoom(1, kWindow));
    Put(1);
  }
  EXPECT_FALSE(blocks_.HasRoom(1, kWindow));
}

TEST_F(StreamBlocksTest, WhatSomebodyWhoLeftMayReadIsNotWrittenAgain) {
  Put(100);
  blocks_.Seal();
  EXPECT_EQ(Put(100).offer_id, 6U);
  blocks_.Retire(2);
  EXPECT_THAT(end_.offers, ElementsAre(6));
  blocks_.Seal();
  EXPECT_THAT(end_.offers, ElementsAre());
  EXPECT_EQ(memory_.current_bytes(), 0U);
}

TEST_F(StreamBlocksTest, NothingIsSharedWhereAChannelCopiesWhatItOffers) {
  end_.copying = true;
  EXPECT_EQ(Put(100).offer_id, 5U);
  EXPECT_EQ(Put(100).offer_id, 6U);
}

}  // namespace
}  // namespace layercast
