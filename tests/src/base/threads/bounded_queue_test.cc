#include "src/base/threads/bounded_queue.h"

#include <gtest/gtest.h>

#include <thread>

namespace layercast {
namespace {

using std::chrono::milliseconds;

TEST(BoundedQueue, PushesBackWhenFull) {
  BoundedQueue<int> queue(1);
  EXPECT_TRUE(queue.Push(1, Deadline::After(milliseconds(0))));
  EXPECT_FALSE(queue.Push(2, Deadline::After(milliseconds(0))));
  EXPECT_EQ(queue.Pop(Deadline::After(milliseconds(0))), 1);
}

TEST(BoundedQueue, NobodyWaitsOnceAStopIsAskedFor) {
  BoundedQueue<int> queue(1);
  std::stop_source stop;
  const Deadline deadline = Deadline::After(std::chrono::hours(1)).OrStop(stop.get_token());
  EXPECT_TRUE(queue.Push(1, deadline));
  std::thread producer([&] { EXPECT_FALSE(queue.Push(2, deadline)); });
  stop.request_stop();
  producer.join();
  EXPECT_EQ(queue.Pop(deadline), 1);
  EXPECT_EQ(queue.Pop(deadline), std::nullopt);
}

TEST(BoundedQueue, IsDrainedOnceItIsClosed) {
  BoundedQueue<int> queue(2);
  std::thread producer([&] {
    EXPECT_TRUE(queue.Push(1, Deadline::After(std::chrono::hours(1))));
    EXPECT_TRUE(queue.Push(2, Deadline::After(std::chrono::hours(1))));
    queue.Close();
  });
  EXPECT_EQ(queue.PopUntilClosed(), 1);
  EXPECT_EQ(queue.PopUntilClosed(), 2);
  EXPECT_EQ(queue.PopUntilClosed(), std::nullopt);
  producer.join();
}

TEST(BoundedQueue, HandsOverInOrderBetweenThreads) {
  BoundedQueue<int> queue(3);
  const Deadline deadline = Deadline::After(milliseconds(10'000));
  std::thread producer([&] {
    for (int i = 0; i < 1000; ++i) EXPECT_TRUE(queue.Push(int{i}, deadline));
    queue.Close();
  });
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(queue.Pop(deadline), i);
  EXPECT_EQ(queue.Pop(deadline), std::nullopt);
  producer.join();
}

}  // namespace
}  // namespace layercast
