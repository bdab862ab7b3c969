// The publisher's half of the protocol, without a socket.
#include "src/session/offer_desk.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "tests/session/publishing.h"

namespace layercast::testing {
namespace {

class OfferDeskTest : public ::testing::Test {
 protected:
  using Channels = std::function<std::vector<wire::ChannelAddress>(const OfferedVersion&)>;

  // A desk that offers the version.
  std::unique_ptr<OfferDesk> MakeDesk(Channels channels, std::function<double()> core_seconds) {
    auto desk =
        std::make_unique<OfferDesk>(DeskOptions{.name = "publisher"},
                                    OfferDesk::Parts{.pool = pool_,
                                                     .failpoints = failpoints_,
                                                     .outbox = outbox_,
                                                     .arena = memory_,
                                                     .device = nullptr,
                                                     .ends = {},
                                                     .channels = std::move(channels),
                                                     .take_offer_ids = [](std::uint64_t) { return std::uint64_t{2}; },
                                                     .core_seconds = std::move(core_seconds)});
    desk->Add(version_);
    return desk;
  }
  static bool IsReleased(const OfferedVersion& version) {
    return version.WaitReleased(Deadline::After(std::chrono::milliseconds(0)));
  }

  WorkerPool pool_{1};
  FailPoints failpoints_;
  Outbox outbox_;
  HostMemory memory_;
  const std::shared_ptr<OfferedVersion> version_ =
      std::make_shared<OfferedVersion>(SomeWeights().ToManifest(), Offer{.id = 1, .tensors = {}}, false);
  const SessionKey key_{"receiver", 1};
};

// The trainer withdraws whenever it likes, also while a receiver is being welcomed: that one either reads the version
// until it is done, or never gets it.
TEST_F(OfferDeskTest, AVersionThatIsWithdrawnWhileAReceiverIsWelcomedIsNotReleasedUnderIt) {
  OfferDesk* welcoming = nullptr;
  bool released = false;
  const auto withdraw = [&](const OfferedVersion&) {
    welcoming->Withdraw(version_);
    released = IsReleased(*version_);
    return std::vector<wire::ChannelAddress>();
  };
  const auto desk = MakeDesk(withdraw, [] { return 0.0; });
  welcoming = desk.get();
  const std::vector<wire::Message> answers = desk->Take(key_, wire::Hello{});
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<wire::Welcome>(answers.front()));
  EXPECT_FALSE(released);
  desk->Take(key_, wire::Bye{});
  EXPECT_TRUE(IsReleased(*version_));
}

TEST_F(OfferDeskTest, SaysWhatServingCostSinceTheSessionBeganAndNeverLessThanNothing) {
  double core_seconds = 1;
  const auto desk =
      MakeDesk([](const OfferedVersion&) { return std::vector<wire::ChannelAddress>(); }, [&] { return core_seconds; });
  desk->Take(key_, wire::Hello{});
  const auto asked = [&] {
    const std::vector<wire::Message> answers = desk->Take(key_, wire::CostRequest{});
    return std::get<wire::ServingCost>(answers.at(0)).core_us;
  };
  core_seconds = 1.5;
  EXPECT_EQ(asked(), 500'000U);
  core_seconds = 0.5;  // a channel's thread has ended
  EXPECT_EQ(asked(), 0U);
}

}  // namespace
}  // namespace layercast::testing
