// A publisher that was told of a fleet, and its members: each with a library and a device of its own, on a thread of
// its own while it waits.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "tests/src/transport/nccl/nccl_fixture.h"

namespace layercast::nccl_channel {

class NcclFleet : public ::testing::Test {
 protected:
  static constexpr std::size_t kSize = std::size_t{20} << 20;
  static constexpr std::chrono::milliseconds kForever = test::kPatience;  // a test that waits this long has failed
  static constexpr std::chrono::milliseconds kAtOnce{0};
  static constexpr std::chrono::milliseconds kSoon{2000};  // for who is frozen; long for who is not

  struct Member {
    explicit Member(const std::string& address) : end(TransportOf(parts())->Connect(address, Soon())) {}
    NcclParts parts() const { return {library, device}; }

    std::shared_ptr<test::FakeNccl> library = std::make_shared<test::FakeNccl>();
    std::shared_ptr<test::FakeChannelDevice> device = std::make_shared<test::FakeChannelDevice>();
    std::unique_ptr<FetchingEnd> end;
  };
  using Members = std::list<Member>;

  // `patience`: the publisher's. What no test is about takes for ever, so that only what it is about comes about.
  void Publish(std::size_t fleet_size, Patience patience = {.to_gather = kForever, .to_share = kForever}) {
    publisher_ = TransportOf({library_, device_, patience})->Offering({.fleet_size = fleet_size});
    published_.emplace(*publisher_, 1, std::array{kSize});
  }
  RawReceiver Raw() const { return {publisher_->address(), {std::make_shared<test::FakeNccl>(), device_}}; }

  // At once, as a fleet comes.
  Members Connect(std::size_t count) {
    std::mutex mutex;
    Members members;
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 0; i < count; ++i) {
        threads.emplace_back([&] {
          auto member = Members();
          member.emplace_back(publisher_->address());
          const std::lock_guard lock(mutex);
          members.splice(members.end(), member);
        });
      }
    }
    return members;
  }

  // Everybody fetches on a thread of his own what `regions(number)` says, chunk by chunk, all asked for at once.
  using Chunks = std::vector<std::vector<Region>>;
  static void FetchEach(Members& members, const std::function<Chunks(std::size_t)>& chunks) {
    std::vector<std::jthread> threads;
    std::size_t number = 0;
    for (Member& member : members) {
      threads.emplace_back([&member, wanted = chunks(number++)] { FetchAll(*member.end, wanted); });
    }
  }
  static void FetchAll(FetchingEnd& end, const Chunks& wanted) {
    std::vector<test::Fetch> fetches(wanted.begin(), wanted.end());
    for (std::size_t i = 0; i < fetches.size(); ++i) fetches[i].Submit(end, i, 1);
    std::vector<ChunkCompletion> completions;  // looked at when all are there: meanwhile a member is as good as frozen
    while (completions.size() < fetches.size()) {
      auto completion = end.Poll(Soon());
      ASSERT_TRUE(completion);
      completions.push_back(*std::move(completion));
    }
    for (const ChunkCompletion& completion : completions) {
      EXPECT_TRUE(fetches.at(completion.ticket).IsRight(completion)) << completion.ticket;
    }
  }

  static Chunks OneChunk() { return {{{0, 0, kSize, 1, kSize}}}; }
  static std::size_t BytesOf(const Chunks& chunks) {
    std::size_t bytes = 0;
    for (const auto& regions : chunks) {
      for (const Region& region : regions) bytes += region.num_bytes();
    }
    return bytes;
  }

  std::shared_ptr<test::FakeNccl> library_ = std::make_shared<test::FakeNccl>();  // the publisher's
  std::shared_ptr<test::FakeChannelDevice> device_ = std::make_shared<test::FakeChannelDevice>();
  std::unique_ptr<OfferingEnd> publisher_;
  std::optional<test::PublishedBytes> published_;
};

}  // namespace layercast::nccl_channel
