// A slot of adapters that one rank lends and another one takes.
#include "engine_side/server/rank/slot_lending.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "engine_side/server/rank/lent_buffers.h"
#include "engine_side/server/rank/weights_lender.h"
#include "layercast/error.h"
#include "layercast/receiver.h"
#include "tests/engine_side/adapters/load/adapter_models.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::kLlama;
using testing::TreeOfConfig;

// Two slots of one rank.
struct Slots {
  Slots()
      : slots(AdapterTermsOf(*TreeOfConfig(kLlama, {}), {}), {.slots = 2, .max_rank = 4, .dtype = DType::kF32}, memory,
              memory) {
    for (std::size_t slot = 0; slot < 2; ++slot) slots.Clear(slot);
  }

  std::span<std::byte> Bytes(std::size_t slot, std::size_t buffer) const {
    const CapturedBuffer of = slots.Buffers(slot)[buffer];
    return {of.address, static_cast<std::size_t>(NumBytes(of.dtype, of.shape))};
  }

  HostMemory memory;
  AdapterSlots slots;
};

class SlotLendingTest : public ::testing::Test {
 protected:
  SlotLendingTest() {
    float value = 1;
    for (std::size_t slot = 0; slot < 2; ++slot) {
      for (std::size_t i = 0; i < mine_.slots.Buffers(slot).size(); ++i) {
        const std::span<std::byte> bytes = mine_.Bytes(slot, i);
        for (std::size_t at = 0; at < bytes.size(); at += sizeof(float), value += 1) {
          std::memcpy(bytes.data() + at, &value, sizeof(float));
        }
      }
    }
    mine_.slots.Numbers(1)[0] = {2, 0.1F};
    mine_.slots.Numbers(1)[2] = {4, 2.0F};
  }

  // Lends slot 1 of mine_. Returns what the other rank needs.
  Digest Lend() {
    CapturedBuffers buffers = BuffersToLend(mine_.slots, 1, TermsIn(mine_.slots, 1), mine_.slots.Numbers(1));
    const Digest digest = buffers.ServedDigest();
    lent_.Become(std::move(buffers));
    endpoint_ = lender_.Lend(lent_, LentAs(1), {});
    return digest;
  }
  void TakeIntoSlot0(const Digest& digest) {
    const std::vector<std::size_t> terms = {0, 2};
    const CapturedBuffers buffers = BuffersToLend(theirs_.slots, 0, terms, theirs_.slots.Numbers(0));
    Receiver receiver(TreeOfBuffers(buffers), {}, {}, buffers, {.commit = CommitPolicy::kInPlace});
    receiver.ReloadWeights(FromEngineRank(endpoint_, LentAs(1), digest));
  }

  Slots mine_, theirs_;
  CapturedBuffers none_ = CapturedBuffers::Adopt({});
  LentBuffers lent_;
  WeightsLender lender_{none_};
  std::string endpoint_;
};

TEST_F(SlotLendingTest, WhatTheAdapterHasComesWithItsRanksAndScalesAndNothingElse) {
  EXPECT_THAT(TermsIn(mine_.slots, 1), ElementsAre(0, 2));
  TakeIntoSlot0(Lend());
  EXPECT_THAT(TermsIn(theirs_.slots, 0), ElementsAre(0, 2));
  EXPECT_EQ(theirs_.slots.Numbers(0)[2].scale, 2.0F);
  EXPECT_EQ(DigestOfSlot(theirs_.slots, 0), DigestOfSlot(mine_.slots, 1));
  for (std::size_t buffer = 0; buffer < mine_.slots.Buffers(1).size(); ++buffer) {
    const std::span<std::byte> got = theirs_.Bytes(0, buffer), lent = mine_.Bytes(1, buffer);
    const bool comes = buffer / 2 == 0 || buffer / 2 == 2;
    EXPECT_EQ(std::ranges::equal(got, lent), comes) << buffer;
  }
}

TEST_F(SlotLendingTest, ASlotThatIsFilledAgainIsLentNoMore) {
  const Digest digest = Lend();
  { const auto writing = lent_.Write(); }
  EXPECT_THAT(ErrorOf([&] { TakeIntoSlot0(digest); }), HasSubstr("taken another version meanwhile"));
  TakeIntoSlot0(Lend());
  EXPECT_EQ(DigestOfSlot(theirs_.slots, 0), DigestOfSlot(mine_.slots, 1));
}

TEST_F(SlotLendingTest, OtherBytesThanThoseThatWereLentAreRefused) {
  Lend();
  EXPECT_THAT(ErrorOf([&] { TakeIntoSlot0(Digest{.high = 1, .low = 2}); }, ErrorCode::kCorrupt),
              HasSubstr("digest of its served bytes expected"));
}

}  // namespace
}  // namespace layercast
