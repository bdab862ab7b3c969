#include "src/base/threads/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <stdexcept>
#include <thread>
#include <vector>

#include "src/base/threads/thread_clock.h"

namespace layercast {
namespace {

TEST(WorkerPool, CallsEveryIndexOnce) {
  for (const std::size_t threads : {1U, 2U, 4U}) {
    WorkerPool pool(threads);
    for (int round = 0; round < 100; ++round) {
      std::vector<std::atomic<int>> calls(37);
      pool.For(calls.size(), [&](std::size_t i) { calls[i].fetch_add(1); });
      for (const auto& count : calls) ASSERT_EQ(count.load(), 1);
    }
  }
}

TEST(WorkerPool, BringsTheFirstFailureBackAndGoesOnWorking) {
  WorkerPool pool(3);
  EXPECT_THROW(pool.For(100,
                        [](std::size_t i) {
                          if (i == 41) throw std::runtime_error("41");
                        }),
               std::runtime_error);
  std::atomic<int> calls{0};
  pool.For(10, [&](std::size_t) { calls.fetch_add(1); });
  EXPECT_EQ(calls.load(), 10);
}

TEST(WorkerPool, CountsWhatItsThreadsComputeForWhoAsked) {
  WorkerPool pool(2);
  const auto compute = [&] {  // on both threads: each index waits for the other to have begun
    std::barrier begun(2);
    pool.For(2, [&](std::size_t) {
      begun.arrive_and_wait();
      const double began = CoreSecondsOfThisThread();
      while (CoreSecondsOfThisThread() - began < 0.002) continue;
    });
  };
  const double before = WorkerPool::HelpersCoreSeconds();
  compute();
  EXPECT_GE(WorkerPool::HelpersCoreSeconds() - before, 0.002);
  std::jthread([] { EXPECT_EQ(WorkerPool::HelpersCoreSeconds(), 0); }).join();
}

}  // namespace
}  // namespace layercast
