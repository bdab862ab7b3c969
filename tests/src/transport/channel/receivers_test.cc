// What the service threads of channels have in common: who is hung up on, and how long a wait takes.
#include "src/transport/channel/receivers.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <atomic>
#include <future>
#include <utility>
#include <vector>

#include "src/net/control_socket.h"
#include "src/net/service_thread.h"
#include "src/net/wake_up.h"
#include "tests/conformance/published_bytes.h"

namespace layercast {
namespace {

using test::kPatience;

// Answers whatever it is told with so many bytes.
class AnsweringReceiver {
 public:
  AnsweringReceiver(UniqueFd connected, const std::size_t& answer, std::uint64_t number)
      : control_(std::move(connected)), answer_(answer), number_(number) {}
  void TakeMessages() {
    control_.Flush();
    more_ =
        control_.ReceiveSome([this](std::span<const std::byte>) { control_.Send(std::vector<std::byte>(answer_)); });
  }
  bool Progress() { return false; }
  bool more() const { return more_; }
  bool TooLate() const { return false; }
  const ControlSocket& control() const { return control_; }
  std::uint64_t number() const { return number_; }

 private:
  ControlSocket control_;
  const std::size_t answer_;
  const std::uint64_t number_;
  bool more_ = false;
};

TEST(Receivers, HangUpOnWhoeverTakesNoAnswersAndOnNobodyElse) {
  ControlAddress address;
  UniqueFd listener = Listen("127.0.0.1", address);
  const WakeUp wake;
  constexpr std::size_t kAnswer = 1 << 20;
  Receivers<AnsweringReceiver, std::size_t> receivers("test", std::move(listener), kAnswer, wake, 2);
  const Deadline deadline = Deadline::After(kPatience);
  ControlSocket takes_none = ControlSocket::Connect(address, deadline);
  ControlSocket takes_all = ControlSocket::Connect(address, deadline);
  while (receivers.all().size() < 2 && !deadline.Passed()) receivers.TakeMessages(std::chrono::milliseconds(10));
  // A socket takes some megabytes that nobody reads.
  for (std::size_t told = 0; told < 64 && receivers.all().size() == 2; ++told) {
    takes_none.Send({});
    takes_all.Send({});
    bool answered = false;
    while (!answered && !deadline.Passed()) {
      receivers.TakeMessages(std::chrono::milliseconds(0));
      answered = takes_all.Receive().has_value();
    }
  }
  ASSERT_EQ(receivers.all().size(), 1U);
  EXPECT_EQ(receivers.all().front().number(), 2U);
}

TEST(ServiceThread, WaitsNoLongerThanItAsksTo) {
  std::promise<int> slack;
  const WakeUp wake;
  const ServiceThread service("test", "lc-test", wake,
                              [&](const std::stop_token&) { slack.set_value(::prctl(PR_GET_TIMERSLACK)); });
  EXPECT_EQ(slack.get_future().get(), 1000);
}

}  // namespace
}  // namespace layercast
