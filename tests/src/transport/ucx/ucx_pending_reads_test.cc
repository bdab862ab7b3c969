// Reads of UCX's that do not land at once, as over RDMA: in software over TCP, which only a test has it do. Both ends
// are here, so that nothing moves unless a test lets it.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>

#include "src/transport/ucx/one_sided/ucx_memory.h"
#include "src/transport/ucx/one_sided/ucx_reads.h"
#include "tests/src/transport/ucx/ucx_fixture.h"

namespace layercast::ucx_channel {
namespace {

constexpr std::size_t kRunBytes = 4 << 20;
constexpr std::uint64_t kRuns = 4;

ReadLanes TcpLanes() { return {"tcp", {"tcp/"}, {}}; }

// Of one domain, with a byte for it: TCP's reads it not.
Bytes KeyOfTcp() {
  Bytes key(11);
  key[0] = key[9] = std::byte{1};
  return key;
}

// UCX 1.13 does not survive the end of a target that has yet to send what it serves in software: so a target moves only
// while everything is to land.
class UcxPendingReads : public ::testing::Test {
 protected:
  UcxPendingReads() : target_(std::in_place, MakeReadContext(TcpLanes(), UCP_FEATURE_RMA, false)) {
    for (std::size_t i = 0; i < source_.size(); ++i) source_[i] = test::PatternByte(0, 0, i);
    reads_.Connect(target_->Address());
    key_ = reads_.Open(KeyOfTcp());
    Begin(kRuns, 8);  // the two ends know each other after it
    EXPECT_TRUE(Land({kRuns}));
  }
  ~UcxPendingReads() override { reads_.Abandon(); }  // before the key goes

  // Of the run that begins there; `ticket` is its number, or beyond them all.
  void Begin(std::uint64_t ticket, std::size_t bytes) {
    const std::uint64_t offset = ticket % kRuns * kRunBytes;
    EXPECT_FALSE(reads_.Read(*key_, reinterpret_cast<std::uintptr_t>(source_.data()) + offset,
                             std::span(destination_).subspan(offset, bytes), ticket));
  }
  void BeginAll() {
    for (std::uint64_t run = 0; run < kRuns; ++run) Begin(run, kRunBytes);
  }
  // Each of these once, and no other.
  bool Land(const std::set<std::uint64_t>& tickets) {
    std::multiset<std::uint64_t> landed;
    for (const Deadline deadline = Soon(); !deadline.Passed() && landed.size() < tickets.size();) {
      reads_.Progress();
      target_->Progress();
      while (const auto ticket = reads_.TakeLanded()) landed.insert(*ticket);
    }
    return std::ranges::equal(landed, tickets) && reads_.failure().empty();
  }

  Bytes source_ = Bytes(kRuns * kRunBytes);
  Bytes destination_ = Bytes(kRuns * kRunBytes, std::byte{0x5A});
  std::optional<UcxLink> target_;
  UcxReads reads_{TcpLanes()};
  std::unique_ptr<RemoteKey> key_;
};

TEST_F(UcxPendingReads, AreToldByTheirTicketsWhenTheyHaveLanded) {
  BeginAll();
  EXPECT_FALSE(reads_.TakeLanded());
  EXPECT_TRUE(Land({0, 1, 2, 3}));
  EXPECT_EQ(destination_, source_);
}

TEST_F(UcxPendingReads, AreGivenUpWhenTheyAreAbandoned) {
  BeginAll();
  reads_.Progress();
  reads_.Abandon();
  reads_.Progress();
  EXPECT_FALSE(reads_.TakeLanded());
  EXPECT_EQ(std::count(destination_.begin() + 8, destination_.end(), std::byte{0x5A}), std::ssize(destination_) - 8);
}

TEST_F(UcxPendingReads, FailWhenTheTargetEnds) {
  BeginAll();
  reads_.Progress();
  target_.reset();
  for (const Deadline deadline = Soon(); !deadline.Passed() && reads_.failure().empty();) reads_.Progress();
  EXPECT_NE(reads_.failure().find("UCX lost"), std::string::npos) << reads_.failure();
  EXPECT_FALSE(reads_.TakeLanded());
}

}  // namespace
}  // namespace layercast::ucx_channel
