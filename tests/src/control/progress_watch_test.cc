// What a controller's caller is told while engines reload.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "layercast/controller.h"
#include "src/control/progress_forms.h"
#include "src/control/rpc.h"

namespace layercast {
namespace {

const Version kComing{.lineage = "run", .step = 3, .digest = {.high = 1, .low = 2}};

// An engine whose reload comes a little further whenever it is asked for its status, and is done at the end.
class ReloadingEngine {
 public:
  static constexpr std::uint64_t kParts = 4;

  std::string endpoint() const { return server_.endpoint(); }

 private:
  void Take(const std::string& method, const Json& params, const RpcReply& reply) {
    if (method == "reload_weights") return reload_.emplace(reply), void();
    EXPECT_EQ(params, (Json{{"last_report", false}}));
    if (!reload_ || came_ == kParts) return reply.Result({{"state", "serving"}, {"progress", nullptr}});
    ++came_;
    const std::vector<ReloadProgress> ranks(2, {.version = kComing,
                                                .stage = "receive",
                                                .bytes = 10 * came_,
                                                .bytes_total = 10 * kParts,
                                                .layers = came_,
                                                .layers_total = kParts});
    reply.Result({{"state", "receiving"}, {"progress", EngineProgressToJson(ranks)}});
    if (came_ < kParts) return;
    reload_->Result({{"ok", true},
                     {"version", VersionToJson(kComing)},
                     {"report", {{"bytes", 20 * kParts}, {"bytes_total", 20 * kParts}, {"layers", 2 * kParts}}},
                     {"error", nullptr}});
  }

  std::optional<RpcReply> reload_;  // this and what follows belong to the server's thread until it is done
  std::uint64_t came_ = 0;
  RpcServer server_{
      "tcp://127.0.0.1:0", Keys(),
      [this](const std::string& method, const Json& params, const RpcReply& reply) { Take(method, params, reply); }};
};

TEST(ProgressWatch, TellsOfEveryEngineOnTheCallersThreadUntilItHasEverything) {
  ReloadingEngine first, second;
  Controller controller({first.endpoint(), second.endpoint()});
  std::vector<std::vector<EngineProgress>> told(2);
  const std::thread::id here = std::this_thread::get_id();
  const auto outcomes =
      controller.ReloadWeights({.publisher = "tcp://127.0.0.1:9", .on_progress = [&](const EngineProgress& progress) {
                                  EXPECT_EQ(std::this_thread::get_id(), here);
                                  told.at(progress.engine).push_back(progress);
                                }});
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(outcomes[i].ok) << outcomes[i].error->what();
    ASSERT_FALSE(told[i].empty());
    std::uint64_t bytes = 0;
    for (const EngineProgress& progress : told[i]) {
      EXPECT_EQ(progress.endpoint, controller.endpoints()[i]);
      EXPECT_EQ(progress.all.version, kComing);
      EXPECT_EQ(progress.all.bytes_total, 20 * ReloadingEngine::kParts);
      EXPECT_GE(progress.all.bytes, bytes);
      bytes = progress.all.bytes;
    }
    EXPECT_EQ(told[i].front().state, "receiving");
    EXPECT_EQ(told[i].front().ranks.size(), 2U);
    EXPECT_EQ(told[i].back().state, "serving");
    EXPECT_EQ(told[i].back().all.bytes, told[i].back().all.bytes_total);
    EXPECT_EQ(told[i].back().all.layers, told[i].back().all.layers_total);
  }
}

TEST(ProgressWatch, WhatTheCallersCodeThrowsCostsTheReloadNothing) {
  ReloadingEngine engine;
  Controller controller({engine.endpoint()});
  int told = 0;
  const auto outcomes =
      controller.ReloadWeights({.publisher = "tcp://127.0.0.1:9", .on_progress = [&](const EngineProgress&) {
                                  ++told;
                                  throw std::runtime_error("a broken bar");
                                }});
  EXPECT_TRUE(outcomes[0].ok) << outcomes[0].error->what();
  EXPECT_EQ(told, 1);
}

// Another version's engine, or one whose status is broken, is reloaded all the same.
TEST(ProgressWatch, AnEngineThatSaysNothingOfItsProgressIsReloadedAllTheSame) {
  for (const Json& status : {Json{{"state", "receiving"}}, Json{{"state", 7}, {"progress", {{"bytes", "x"}}}}}) {
    std::optional<RpcReply> reload;
    int asked = 0;
    RpcServer engine("tcp://127.0.0.1:0", Keys(), [&](const std::string& method, const Json&, const RpcReply& reply) {
      if (method == "reload_weights") return reload.emplace(reply), void();
      reply.Result(status);
      if (reload && ++asked == 2) reload->Result({{"ok", true}, {"version", nullptr}, {"report", nullptr}});
    });
    const auto outcomes = Controller({engine.endpoint()})
                              .ReloadWeights({.publisher = "tcp://127.0.0.1:9",
                                              .on_progress = [](const EngineProgress&) { ADD_FAILURE(); }});
    EXPECT_TRUE(outcomes[0].ok) << outcomes[0].error->what();
  }
}

TEST(ProgressWatch, NobodyIsAskedForWhatNobodyIsTold) {
  std::atomic<int> asked{0};
  RpcServer engine("tcp://127.0.0.1:0", Keys(), [&](const std::string& method, const Json&, const RpcReply& reply) {
    if (method == "status") ++asked;
    reply.Result({{"ok", true}, {"version", nullptr}, {"report", nullptr}});
  });
  EXPECT_TRUE(Controller({engine.endpoint()}).ReloadWeights({.publisher = "tcp://127.0.0.1:9"})[0].ok);
  EXPECT_EQ(asked, 0);
}

}  // namespace
}  // namespace layercast
