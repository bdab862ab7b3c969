// An attempt that is given up while its session is being opened: no wait goes on until its own deadline.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <stop_token>

#include "src/session/link/my_host.h"
#include "tests/support/error_of.h"
#include "tests/support/fakes/raw_zmtp.h"
#include "tests/support/session/publishing.h"
#include "tests/support/session/raw_peers.h"

namespace layercast::testing {
namespace {

class GivingUpTest : public SessionTest {
 protected:
  // Gives up when the publisher has done what it does.
  template <class Does>
  std::string ErrorOfOpening(Does publisher_does) {
    const auto publisher = std::async(std::launch::async, [&] {
      publisher_does();
      stop_.request_stop();
    });
    FetchOptions options;
    options.channels = &channels_;
    options.stop = stop_.get_token();
    options.peer_timeout = std::chrono::hours(1);
    return ErrorOf(
        [&] {
          FetchSession::Open(std::vector{publisher_.endpoint()}, {"engine", 1, 0, 1}, "run", 3, options,
                             receiver_failpoints_, Deadline::After(std::chrono::hours(1)));
        },
        ErrorCode::kCancelled);
  }
  std::string Expected() const {
    return "publisher " + publisher_.endpoint() + ", opening a session: this attempt was given up";
  }

  RawPublisher publisher_;
  std::stop_source stop_;
};

TEST_F(GivingUpTest, WhileThePublisherIsSilent) {
  EXPECT_EQ(ErrorOfOpening([&] { (void)publisher_.ReceiveBytes(); }), Expected());
}

TEST_F(GivingUpTest, WhileItsDataChannelIsSilent) {
  const RawZmtpServer::Listener channel;
  EXPECT_EQ(ErrorOfOpening([&] {
              wire::Welcome welcome;
              welcome.host = MyHost();
              welcome.manifest = Manifest("run", 3, {}).Encode();
              welcome.channels = {{"zmq", channel.endpoint()}};
              const std::uint64_t session = wire::Decode(publisher_.ReceiveBytes()).session;
              publisher_.Send({.session = session, .message = welcome});
            }),
            Expected());
}

}  // namespace
}  // namespace layercast::testing
