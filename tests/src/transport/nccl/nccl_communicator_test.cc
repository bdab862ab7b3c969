// Communicators of two ranks over the fake of NCCL: what is sent arrives, and every way in which it may not is an
// error.
#include "src/transport/nccl/wire/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <vector>

#include "layercast/error.h"
#include "tests/support/error_of.h"
#include "tests/support/fakes/fake_channel_device.h"
#include "tests/support/fakes/fake_nccl.h"

namespace layercast::nccl_channel {
namespace {

using layercast::testing::ErrorOf;
using ::testing::HasSubstr;

constexpr int kRounds = 10'000;  // of asking: more than anything takes that ends

Membership Pair(const ncclUniqueId& id, int rank) { return {1, 2, rank, id}; }

// Both ranks, on one thread.
class NcclCommunicator : public ::testing::Test {
 protected:
  void Begin() {
    const ncclUniqueId id = MakeUniqueId(library_);
    publisher_.emplace(library_, device_, Pair(id, kPublisherRank));
    receiver_.emplace(library_, device_, Pair(id, 1));
  }
  void Settle() {
    for (int i = 0; i < kRounds; ++i) {
      const bool publisher = publisher_->Settled();
      if (receiver_->Settled() && publisher) return;
    }
    FAIL() << "it never settled";
  }
  bool Arrives(std::uint64_t mark) {
    for (int i = 0; i < kRounds; ++i) {
      sending_->Reached(sending_->Mark());
      if (receiving_->Reached(mark)) return true;
    }
    return false;
  }
  std::vector<Transfer> Blocks(const std::vector<std::size_t>& sizes, int fill) {
    std::vector<Transfer> transfers;
    for (const std::size_t size : sizes) {
      Buffer& block = blocks_.emplace_back(device_.device_memory(), size);
      std::memset(block.data(), fill++, size);
      transfers.push_back({block.data(), size, 1});
    }
    return transfers;
  }

  test::FakeChannelDevice device_;
  test::FakeNccl library_;
  std::vector<Buffer> blocks_;
  std::unique_ptr<CopyStream> sending_ = device_.MakeStream();
  std::unique_ptr<CopyStream> receiving_ = device_.MakeStream();
  std::optional<Communicator> publisher_;
  std::optional<Communicator> receiver_;
};

TEST_F(NcclCommunicator, IsSetUpWithoutWaitingForTheOtherRank) {
  const ncclUniqueId id = MakeUniqueId(library_);
  receiver_.emplace(library_, device_, Pair(id, 1));
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(receiver_->Settled());
  publisher_.emplace(library_, device_, Pair(id, kPublisherRank));
  Settle();
}

TEST_F(NcclCommunicator, BringsGroupsInOrder) {
  Begin();
  Settle();
  const std::vector<std::size_t> sizes = {1, 1'000'000, 77};
  const std::vector<Transfer> sent = Blocks(sizes, 1);
  const std::vector<Transfer> received = Blocks(sizes, 100);
  publisher_->Send(sent, *sending_);
  receiver_->Receive(received, *receiving_);
  Settle();
  ASSERT_TRUE(Arrives(receiving_->Mark()));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(std::memcmp(sent[i].memory, received[i].memory, sizes[i]), 0) << i;
  }
}

TEST_F(NcclCommunicator, AMarkBeforeAGroupHasSettledIsNotBehindIt) {
  Begin();
  Settle();
  receiver_->Receive(Blocks({8}, 0), *receiving_);
  EXPECT_TRUE(receiving_->Reached(receiving_->Mark()));  // which is why Settled is asked first
}

TEST_F(NcclCommunicator, SizesThatDifferAreAnError) {
  Begin();
  Settle();
  publisher_->Send(Blocks({100}, 1), *sending_);
  receiver_->Receive(Blocks({101}, 2), *receiving_);
  Settle();
  EXPECT_FALSE(Arrives(receiving_->Mark()));
  EXPECT_THAT(ErrorOf([&] { receiver_->Settled(); }, ErrorCode::kUnavailable), HasSubstr("invalid usage"));
}

TEST_F(NcclCommunicator, AnAbortEndsWhatIsUnderWayAtBothEnds) {
  Begin();
  Settle();
  receiver_->Receive(Blocks({1'000'000}, 1), *receiving_);
  Settle();
  const std::uint64_t mark = receiving_->Mark();
  EXPECT_FALSE(receiving_->Reached(mark));
  publisher_.reset();
  EXPECT_FALSE(receiving_->Reached(mark));
  EXPECT_THAT(ErrorOf([&] { receiver_->Settled(); }, ErrorCode::kUnavailable), HasSubstr("remote process exited"));
  receiver_.reset();
  EXPECT_TRUE(receiving_->Reached(mark));
}

TEST_F(NcclCommunicator, WhatTheLibraryRefusesIsSaidInItsWords) {
  library_.fail_unique_id = true;
  EXPECT_THAT(ErrorOf([&] { Begin(); }, ErrorCode::kUnavailable), HasSubstr("ncclGetUniqueId: unhandled system error"));
  library_.fail_unique_id = false;
  library_.fail_init = true;
  EXPECT_THAT(ErrorOf([&] { Begin(); }, ErrorCode::kUnavailable),
              HasSubstr("ncclCommInitRankConfig: unhandled cuda error"));
}

TEST_F(NcclCommunicator, AnErrorThatComesLaterIsFoundByAsking) {
  Begin();
  Settle();
  library_.groups_until_error = 0;
  publisher_->Send(Blocks({10}, 1), *sending_);
  EXPECT_FALSE(publisher_->Settled());
  EXPECT_THAT(ErrorOf(
                  [&] {
                    for (int i = 0; i < kRounds; ++i) publisher_->Settled();
                  },
                  ErrorCode::kUnavailable),
              HasSubstr("internal error"));
}

TEST_F(NcclCommunicator, AGroupThatFailedLeavesNoneOpen) {
  Begin();
  Settle();
  std::vector<std::byte> host(10);  // which the device does not reach
  EXPECT_THAT(ErrorOf([&] { publisher_->Send(std::vector<Transfer>{{host.data(), 10, 1}}, *sending_); },
                      ErrorCode::kUnavailable),
              HasSubstr("ncclSend: invalid argument"));
  EXPECT_EQ(library_.GroupStart(), ncclSuccess);
  EXPECT_EQ(library_.GroupEnd(), ncclSuccess);
}

TEST_F(NcclCommunicator, VersionsThatDifferDoNotGetTogether) {
  test::FakeNccl other(NCCL_VERSION(2, 20, 5));
  const ncclUniqueId id = MakeUniqueId(library_);
  publisher_.emplace(library_, device_, Pair(id, kPublisherRank));
  receiver_.emplace(other, device_, Pair(id, 1));
  EXPECT_THROW(Settle(), Error);
  receiver_.reset();  // before its library
}

}  // namespace
}  // namespace layercast::nccl_channel
