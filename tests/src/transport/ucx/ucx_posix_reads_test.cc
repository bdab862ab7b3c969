// One-sided reads by UCX itself: over shared memory, since there is no RDMA here. What UCX allocated there is loaded by
// the reader; the rest is as over RDMA: contexts, keys, endpoints, ucp_get_nbx.
#include <gtest/gtest.h>

#include <numeric>
#include <utility>

#include "layercast/error.h"
#include "src/transport/ucx/one_sided/ucx_memory.h"
#include "src/transport/ucx/one_sided/ucx_one_sided.h"
#include "src/transport/ucx/one_sided/ucx_reads.h"
#include "src/transport/ucx/wire/remote_key.h"
#include "tests/src/transport/ucx/ucx_fixture.h"
#include "tests/support/fakes/posix_one_sided.h"

namespace layercast::ucx_channel {
namespace {

constexpr std::size_t kSourceBytes = 1 << 20;

class UcxPosixReads : public ::testing::Test {
 protected:
  UcxPosixReads() {
    for (std::size_t i = 0; i < kSourceBytes; ++i) source_.data()[i] = test::PatternByte(0, 0, i);
    reads_->Connect(target_->Address());
  }
  std::uint64_t address() const { return reinterpret_cast<std::uintptr_t>(source_.data()); }
  // The target makes no progress meanwhile.
  bool Lands(bool at_once) {
    for (const Deadline deadline = Soon(); !at_once && !deadline.Passed();) {
      reads_->Progress();
      if (reads_->TakeLanded()) return true;
    }
    return at_once;
  }

  const std::shared_ptr<const OneSided> one_sided_ = test::MakePosixOneSided();
  const std::unique_ptr<RemoteMemory> memory_ = one_sided_->MakeMemory();
  const Buffer source_{*memory_->arena(), kSourceBytes};
  const std::unique_ptr<ReadTarget> target_ = memory_->MakeTarget();
  const std::unique_ptr<RegisteredMemory> registered_ = memory_->Register(source_.span());
  const std::unique_ptr<RemoteReads> reads_ = one_sided_->MakeReads();
};

TEST_F(UcxPosixReads, BringBytesWithoutTheTargetsProgress) {
  EXPECT_EQ(reads_->lane(), "posix/memory");
  const auto key = reads_->Open(registered_->key());
  for (const auto& [from, bytes] : {std::pair{0, 1}, {1, 7}, {4095, 70'000}, {0, 1 << 20}, {(1 << 20) - 1, 1}}) {
    Bytes destination(static_cast<std::size_t>(bytes) + 1, std::byte{0x5A});
    const auto offset = static_cast<std::size_t>(from);
    EXPECT_TRUE(Lands(reads_->Read(*key, address() + offset, std::span(destination).first(destination.size() - 1), 1)));
    EXPECT_TRUE(std::equal(destination.begin(), destination.end() - 1, source_.data() + offset));
    EXPECT_EQ(destination.back(), std::byte{0x5A});
  }
  EXPECT_EQ(reads_->failure(), "");
}

TEST_F(UcxPosixReads, AreOfKeysAsUcxMakesThem) {
  EXPECT_EQ(registered_->key().size(), 34U);
  EXPECT_NO_THROW(CheckKey(registered_->key()));
  for (std::size_t size = 0; size < registered_->key().size(); ++size) {
    EXPECT_THROW(reads_->Open(std::span(registered_->key()).first(size)), Error) << size;
  }
}

TEST_F(UcxPosixReads, WriteNothingOnceTheyAreAbandoned) {
  Bytes destination(kSourceBytes);
  {
    const auto key = reads_->Open(registered_->key());
    reads_->Read(*key, address(), destination, 1);
    reads_->Abandon();
    std::ranges::fill(destination, std::byte{0x5A});
    reads_->Progress();
    reads_->Abandon();
  }
  EXPECT_EQ(std::ranges::count(destination, std::byte{0x5A}), static_cast<std::ptrdiff_t>(kSourceBytes));
}

TEST_F(UcxPosixReads, AreRefusedOfMemoryThatNoDeviceReads) {
  UcxRemoteMemory memory(test::PosixLanes());  // as it is without the tests' arena: UCX would read this in software
  Bytes ordinary(kSourceBytes);
  try {
    memory.Register(ordinary);
    ADD_FAILURE() << "it was registered";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("names no device that reads by itself"), std::string::npos)
        << error.what();
  }
}

// The publisher's context serves no reads in software: what is asked for without a key's device stays unanswered.
TEST_F(UcxPosixReads, AreNotServedInSoftware) {
  const auto context = MakeReadContext(test::PosixLanes(), UCP_FEATURE_RMA, false);
  UcxLink reader(context);
  reader.Connect(target_->Address());
  Bytes nameless(9 + 256);  // a key of no domain, as of memory of the caller's
  ucp_rkey_h key = nullptr;
  ASSERT_EQ(ucp_ep_rkey_unpack(reader.endpoint(), nameless.data(), &key), UCS_OK);
  Bytes destination(100, std::byte{0x5A});
  ucp_request_param_t params{};
  const ucs_status_ptr_t request =
      ucp_get_nbx(reader.endpoint(), destination.data(), destination.size(), address(), key, &params);
  ASSERT_TRUE(UCS_PTR_IS_PTR(request));
  for (int i = 0; i < 10'000; ++i) {
    reader.Progress();
    target_->Progress();
  }
  EXPECT_EQ(ucp_request_check_status(request), UCS_INPROGRESS);
  ucp_rkey_destroy(key);
  reader.Disconnect();
  ucp_request_free(request);
  EXPECT_EQ(destination, Bytes(100, std::byte{0x5A}));
}

TEST(UcxReadLanes, AreThoseOfRdmaThatTheEnvironmentLeaves) {
  const std::vector<std::pair<const char*, std::string>> cases = {
      {nullptr, "ib"},
      {"all", "ib"},
      {"tcp", ""},
      {"posix,tcp", ""},
      {"rc,tcp", "rc"},
      {"rc_x,ud_x,sm", "rc_x,ud_x"},
      {"dc_mlx5,ud:aux", "dc_mlx5,ud:aux"},
      {"^tcp", "ib"},
      {"^tcp,rc", ""},
      {"", ""},
  };
  for (const auto& [environment, expected] : cases) EXPECT_EQ(RdmaLanes(environment).transports, expected);
}

TEST(UcxReadLanes, AreAllowedOnlyWithADeviceThatReadsAndNothingElse) {
  const ReadLanes lanes = RdmaLanes(nullptr);
  EXPECT_TRUE(lanes.Allow({"rc_mlx5/mlx5_0:1", "ud_mlx5/mlx5_0:1"}));
  EXPECT_TRUE(lanes.Allow({"dc_mlx5/mlx5_1:1"}));
  EXPECT_FALSE(lanes.Allow({"ud_mlx5/mlx5_0:1"}));  // it reads in software
  EXPECT_FALSE(lanes.Allow({"rc_verbs/mlx5_0:1", "tcp/eth0"}));
  EXPECT_FALSE(lanes.Allow({"rc_verbs/mlx5_0:1", "posix/memory"}));
  EXPECT_FALSE(lanes.Allow({}));
}

TEST(UcxReadLanes, OfTheEnvironmentDoNotComeIntoTheContext) {
  const Environment tcp("UCX_TLS", "tcp");
  EXPECT_EQ(MakeReadContext(test::PosixLanes(), UCP_FEATURE_RMA, false)->Lanes(),
            std::vector<std::string>{"posix/memory"});
  EXPECT_THROW(MakeReadContext({"posix,tcp", {"posix/"}, {}}, UCP_FEATURE_RMA, false), Error);
}

TEST(UcxReadLanes, SayWhetherTheyAreHere) {
  EXPECT_FALSE(UcxOneSided(ReadLanes{}).Here());
  EXPECT_FALSE(UcxOneSided(ReadLanes{"tcp", {"rc_"}, {}}).Here());
  EXPECT_TRUE(UcxOneSided(test::PosixLanes()).Here());
}

}  // namespace
}  // namespace layercast::ucx_channel
