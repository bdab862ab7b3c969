#include "src/base/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

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

}  // namespace
}  // namespace layercast
