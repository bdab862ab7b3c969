// What the handle of a published version holds, and may still be asked once its publisher is gone.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <latch>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "layercast/publisher.h"
#include "src/session/choose/channel_chooser.h"
#include "src/session/fetch/fetch.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using Values = std::array<float, 4>;

// Weights of one tensor; `owner` is the second owner of its memory.
Weights Borrowed(const std::shared_ptr<const Values>& owner) {
  const NamedTensor tensor{"w", {DType::kF32, {4}, reinterpret_cast<const std::byte*>(owner->data()), {}}, owner};
  return {
      .specs = {},
      .walk = [tensor](std::span<const std::string>) { return MakeWeightsIterator(std::vector<NamedTensor>{tensor}); },
      .borrowed = true};
}

TEST(PublishedVersion, OneThatIsReleasedHoldsNoMemoryThoughItsHandleIsKept) {
  Publisher publisher(PublisherOptions{.retained_versions = 1});
  auto values = std::make_shared<const Values>(Values{1, -2, 3, 4});
  const std::weak_ptr<const Values> watched = values;
  const PublishedVersion first = publisher.Publish({.lineage = "run", .step = 1}, Borrowed(values));
  values.reset();
  const auto later = std::make_shared<const Values>(Values{1, 2, 3, 4});
  publisher.Publish({.lineage = "run", .step = 2}, Borrowed(later));  // the first is withdrawn
  EXPECT_FALSE(watched.expired());
  publisher.Publish({.lineage = "run", .step = 3}, Borrowed(later));  // and goes, as nobody reads it
  EXPECT_TRUE(watched.expired());
}

TEST(PublishedVersion, MayBeAskedAfterItWasReleasedAndItsPublisherIsGone) {
  std::optional<Publisher> publisher(PublisherOptions{.retained_versions = 1});
  const auto values = std::make_shared<const Values>(Values{1, -2, 3, 4});
  std::vector<PublishedVersion> handles;
  for (std::uint64_t step = 1; step <= 3; ++step) {
    Weights copied = Borrowed(values);
    copied.borrowed = false;  // copies lie in the publisher's arena
    handles.push_back(publisher->Publish({.lineage = "run", .step = step}, std::move(copied)));
  }
  publisher.reset();
  for (const PublishedVersion& handle : handles) {
    handle.Withdraw();
    EXPECT_TRUE(handle.WaitReleased(std::chrono::milliseconds(0)));
    EXPECT_EQ(handle.readers(), 0);
  }
}

TEST(PublishedVersion, MayBeAskedOnAnotherThreadWhileItsPublisherEnds) {
  const auto values = std::make_shared<const Values>(Values{1, -2, 3, 4});
  for (std::uint64_t round = 0; round < 10; ++round) {
    std::optional<Publisher> publisher(PublisherOptions{.channels = {"zmq"}});
    const PublishedVersion handle = publisher->Publish({.lineage = "run", .step = 1}, Borrowed(values));
    std::latch asking(1);
    const std::jthread other([&] {
      asking.count_down();
      handle.Withdraw();
      while (!handle.WaitReleased(std::chrono::milliseconds(0))) std::this_thread::yield();
    });
    asking.wait();
    publisher.reset();
  }
}

// An engine that names its version is refused for such a name.
TEST(PublishedVersion, OfALineageThatCannotBePrintedIsRefused) {
  Publisher publisher(PublisherOptions{});
  const auto publish = [&] {
    publisher.Publish({.lineage = "a\nb"}, Borrowed(std::make_shared<const Values>(Values{1, 2, 3, 4})));
  };
  EXPECT_EQ(testing::ErrorOf(publish, ErrorCode::kInvalidArgument),
            "lineage 'a\\x0ab': expected UTF-8 without control characters");
}

class EvictedVersion : public ::testing::Test {
 protected:
  // Of a receiver that takes nothing.
  std::unique_ptr<FetchSession> Open(const Publisher& publisher) {
    FetchOptions options;
    options.channels = &channels_;
    options.channel = "zmq";
    return FetchSession::Open(std::vector{publisher.endpoint()}, {"engine", 1, 0, 1}, "", std::nullopt, options, none_,
                              Deadline::After(std::chrono::seconds(20)));
  }

  ChannelChooser channels_;
  FailPoints none_;
};

TEST_F(EvictedVersion, LivesOnForItsReadersUntilThereAreTooManyOfThem) {
  Publisher publisher(PublisherOptions{.retained_versions = 1, .evicted_versions = 2, .channels = {"zmq"}});
  std::vector<std::unique_ptr<FetchSession>> readers;
  std::vector<std::weak_ptr<const Values>> watched;
  for (std::uint64_t step = 1; step <= 8; ++step) {
    auto values = std::make_shared<const Values>(Values{1, -2, 3, static_cast<float>(step)});
    watched.push_back(values);
    publisher.Publish({.lineage = "run", .step = step}, Borrowed(values));
    values.reset();
    readers.push_back(Open(publisher));
    const auto live = std::ranges::count_if(watched, [](const auto& one) { return !one.expired(); });
    EXPECT_EQ(live, std::min<std::uint64_t>(step, 4));  // retained, evicted, and the next that must go
  }
  EXPECT_TRUE(watched[3].expired());
  EXPECT_FALSE(watched[4].expired());
}

TEST_F(EvictedVersion, ThatIsWithdrawnIsReleasedThoughItsReaderStays) {
  Publisher publisher(PublisherOptions{.eviction_time = std::chrono::milliseconds(0), .channels = {"zmq"}});
  const PublishedVersion version =
      publisher.Publish({.lineage = "run", .step = 1}, Borrowed(std::make_shared<const Values>(Values{1, 2, 3, 4})));
  const auto reader = Open(publisher);
  EXPECT_EQ(version.readers(), 1);
  version.Withdraw();
  EXPECT_TRUE(version.WaitReleased(std::chrono::seconds(20)));
}

}  // namespace
}  // namespace layercast
