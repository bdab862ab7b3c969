// An engine's service as whoever starts it sees it. The ranks are processes (scripted_rank.cc).
#include "engine_side/server/engine_service.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "tests/model/minimal_config.h"
#include "tests/support/child_process.h"
#include "tests/support/temp_folder.h"

namespace layercast {
namespace {

// The kernel ends them with the thread that has started them.
TEST(EngineService, RanksThatWereStartedAnewInTheFirstLoadOutliveItsCaller) {
  const TempFolder model;
  model.Write("config.json", testing::MinimalConfig().dump());
  EngineServiceOptions options;
  options.ranks.program = test::FolderOfThisProgram() + "/scripted_rank";
  options.ranks.model = model.path();
  options.first_load = {{"load_format", "dummy"}, {"seed", 1}, {"dies_in", "verify"}};
  EngineService service(options);
  const Json started = service.Ready()["pids"];
  std::thread([&] { service.LoadModel(); }).join();
  const Json anew = service.Ready()["pids"];
  EXPECT_NE(started, anew);
  RpcClient controller("controller", service.endpoint());
  for (int i = 0; i < 20; ++i) {
    EXPECT_NO_THROW(controller.Call("digests", Json::object(), Deadline::After(std::chrono::seconds(20)))) << i;
  }
  EXPECT_EQ(service.Ready()["pids"], anew);
}

}  // namespace
}  // namespace layercast
