// Conformance between processes: a process that is killed or frozen is noticed within seconds, named, and holds nobody
// up.
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <stop_token>
#include <string>
#include <thread>

#include "src/transport/all/channel_names.h"
#include "tests/conformance/channel_fixture.h"
#include "tests/support/child_process.h"

namespace layercast::test {
namespace {

std::vector<std::string> NamesAcrossProcesses() {
  std::vector<std::string> names = TransportNames();
  std::erase_if(names, StaysInTheProcess);
  return names;
}

class ChannelProcess : public Channel {
 protected:
  // The command for conformance_peer with these arguments. LAYERCAST_PEER_WITHIN may have a command that runs it on
  // another host, and becomes it.
  static std::vector<std::string> Peer(const std::vector<std::string>& arguments) {
    const char* const within = std::getenv("LAYERCAST_PEER_WITHIN");
    std::istringstream words(within != nullptr ? within : "");
    std::vector<std::string> command(std::istream_iterator<std::string>(words), {});
    command.push_back(FolderOfThisProgram() + "/conformance_peer");
    command.insert(command.end(), arguments.begin(), arguments.end());
    return command;
  }
};
INSTANTIATE_TEST_SUITE_P(Every, ChannelProcess, ::testing::ValuesIn(NamesAcrossProcesses()),
                         [](const auto& test) { return test.param; });

TEST_P(ChannelProcess, BringsBytesFromAnotherProcess) {
  ChildProcess publisher(Peer({"offer", GetParam()}));
  const auto receiver = transport_->Connect(publisher.ReadLine(), Deadline::After(kPatience));
  Fetch fetch({{0, 1, 2'900'000, 1, 2'900'000}, {1, 7, 11, 100, 40}});
  EXPECT_TRUE(fetch.IsRight(FetchOne(*receiver, 7, fetch)));
  EXPECT_EQ(publisher.Wait(), 0);
  ExpectError(ErrorCode::kUnavailable, "publisher at", [&] { FetchOne(*receiver, 7, fetch); });
}

TEST_P(ChannelProcess, AKilledPublisherIsUnavailable) {
  ChildProcess publisher(Peer({"offer", GetParam()}));
  const std::string address = publisher.ReadLine();
  const auto receiver = transport_->Connect(address, Deadline::After(kPatience));
  std::vector<Fetch> fetches = ManyFetches();
  for (std::uint64_t i = 0; i < fetches.size(); ++i) fetches[i].Submit(*receiver, i, 7);
  const auto first = receiver->Poll(Deadline::After(kPatience));
  ASSERT_TRUE(first);
  EXPECT_TRUE(fetches.at(first->ticket).IsRight(*first));
  publisher.Signal(SIGKILL);
  EXPECT_EQ(publisher.Wait(), 128 + SIGKILL);
  // All chunks may have come before that; then nothing is under way, and its end may be noticed a moment later.
  ExpectError(ErrorCode::kUnavailable, address, [&] {
    for (const Deadline deadline = Deadline::After(kPatience); !deadline.Passed();) receiver->Poll(deadline);
  });
  ExpectError(ErrorCode::kUnavailable, address, [&] { transport_->Connect(address, Deadline::After(kPatience)); });
}

TEST_P(ChannelProcess, APublisherThatDiesAtAnyRequestIsUnavailableAndWhatCameIsRight) {
  if (GetParam() == kPosixReads) {
    GTEST_SKIP()
        << "UCX crashes where it cannot map the shared memory of a key, since its owner has died; keys of RDMA "
           "map nothing";
  }
  for (const int served : {0, 1, 2, 4, 7, 11, 15}) {
    ChildProcess publisher(Peer({"offer", GetParam(), "serve.chunk=kill@" + std::to_string(served)}));
    const std::string address = publisher.ReadLine();
    const auto receiver = transport_->Connect(address, Deadline::After(kPatience));
    if (receiver->attaches()) GTEST_SKIP() << "nobody serves a receiver that reads where it lies";
    std::vector<Fetch> fetches = ManyFetches();
    int came = 0;
    ExpectError(ErrorCode::kUnavailable, address, [&] {
      for (std::uint64_t i = 0; i < fetches.size(); ++i) fetches[i].Submit(*receiver, i, 7);
      while (const auto completion = receiver->Poll(Deadline::After(kPatience))) {
        EXPECT_TRUE(fetches.at(completion->ticket).IsRight(*completion)) << served;
        ++came;
      }
    });
    EXPECT_LE(came, served);
    EXPECT_EQ(publisher.Wait(), 128 + SIGKILL);
  }
}

TEST_P(ChannelProcess, AFrozenPublisherIsUnavailable) {
  ChildProcess publisher(Peer({"offer", GetParam()}));
  const std::string address = publisher.ReadLine();
  const auto receiver = transport_->Connect(address, Deadline::After(kPatience));
  Fetch fetch({{0, 0, 1'000'000, 1, 1'000'000}});
  EXPECT_TRUE(fetch.IsRight(FetchOne(*receiver, 7, fetch)));
  publisher.Freeze();
  ExpectError(ErrorCode::kUnavailable, address, [&] { FetchOne(*receiver, 8, fetch); });
  ExpectError(ErrorCode::kDeadlineExceeded, address,
              [&] { transport_->Connect(address, Deadline::After(std::chrono::milliseconds(100))); });
  std::stop_source stop;
  const std::jthread giving_up([&] { stop.request_stop(); });
  ExpectError(ErrorCode::kDeadlineExceeded, address,
              [&] { transport_->Connect(address, Deadline::After(std::chrono::hours(1)).OrStop(stop.get_token())); });
}

TEST_P(ChannelProcess, AReceiverThatDiesAtAnyPointCostsNobodyElseAnything) {
  PublishedBytes published(*publisher_, 7, kPeerSizes);
  for (const char* const point : {"connected", "asked", "under way", "done"}) {
    ChildProcess killed(Peer({"fetch", GetParam(), publisher_->address(), point}));
    EXPECT_EQ(killed.ReadLine(), point);
    killed.Signal(SIGKILL);
    const auto receiver = Connect();
    Fetch fetch({{0, 0, 3'000'000, 1, 3'000'000}});
    EXPECT_TRUE(fetch.IsRight(FetchOne(*receiver, 7, fetch))) << point;
  }
  published.Withdraw();  // must return
}

TEST_P(ChannelProcess, AKilledOrFrozenReceiverHoldsNobodyUp) {
  PublishedBytes published(*publisher_, 7, kPeerSizes);
  ChildProcess killed(Peer({"fetch", GetParam(), publisher_->address()}));
  ChildProcess frozen(Peer({"fetch", GetParam(), publisher_->address()}));
  EXPECT_EQ(killed.ReadLine(), "under way");
  EXPECT_EQ(frozen.ReadLine(), "under way");
  killed.Signal(SIGKILL);
  frozen.Freeze();
  {
    const auto receiver = Connect();
    Fetch fetch({{0, 0, 3'000'000, 1, 3'000'000}});
    EXPECT_TRUE(fetch.IsRight(FetchOne(*receiver, 7, fetch)));
  }
  published.Withdraw();  // must return
  published.Overwrite(std::byte{0});
  const PublishedBytes next(*publisher_, 8, kPeerSizes);
  const auto receiver = Connect();
  Fetch fetch({{1, 0, 4096, 1, 4096}});
  EXPECT_TRUE(fetch.IsRight(FetchOne(*receiver, 8, fetch)));
}

}  // namespace
}  // namespace layercast::test
