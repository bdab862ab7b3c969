#include "src/net/zmq/zmq_threads.h"

#include <gtest/gtest.h>

namespace layercast::testing {
namespace {

// Over TCP, which the library's own threads read and write.
void Exchange(zmq::context_t& context) {
  zmq::socket_t pull(context, zmq::socket_type::pull);
  zmq::socket_t push(context, zmq::socket_type::push);
  pull.bind("tcp://127.0.0.1:*");
  push.connect(pull.get(zmq::sockopt::last_endpoint));
  for (int i = 0; i < 16; ++i) {
    push.send(zmq::message_t(1 << 20), zmq::send_flags::none);
    zmq::message_t message;
    ASSERT_TRUE(pull.recv(message).has_value());
  }
}

TEST(ZmqThreads, AreCountedForTheirOwnContextAlone) {
  zmq::context_t busy;
  zmq::context_t idle;
  ZmqThreads of_busy(busy);
  ZmqThreads of_idle(idle);
  EXPECT_EQ(of_busy.core_seconds(), 0);  // it has no socket, and no thread, yet
  const zmq::socket_t unused(idle, zmq::socket_type::pull);
  Exchange(busy);
  const double first = of_busy.core_seconds();
  EXPECT_GT(first, 0);
  EXPECT_LT(of_idle.core_seconds(), first);
  Exchange(busy);
  EXPECT_GT(of_busy.core_seconds(), first);
}

}  // namespace
}  // namespace layercast::testing
