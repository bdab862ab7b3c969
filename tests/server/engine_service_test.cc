// An engine's service as whoever starts it sees it. The ranks are processes (scripted_rank.cc).
#include "engine_side/server/engine_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "layercast/error.h"
#include "tests/model/minimal_config.h"
#include "tests/support/child_process.h"
#include "tests/support/temp_folder.h"

namespace layercast {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class EngineServiceTest : public ::testing::Test {
 protected:
  EngineServiceTest() { model_.Write("config.json", testing::MinimalConfig().dump()); }

  EngineServiceOptions Options() const {
    EngineServiceOptions options;
    options.ranks.program = test::FolderOfThisProgram() + "/scripted_rank";
    options.ranks.model = model_.path();
    options.first_load = {{"load_format", "dummy"}, {"seed", 1}};
    return options;
  }

 private:
  const TempFolder model_;
};

// The kernel ends them with the thread that has started them.
TEST_F(EngineServiceTest, RanksThatWereStartedAnewInTheFirstLoadOutliveItsCaller) {
  EngineServiceOptions options = Options();
  options.first_load["dies_in"] = "verify";
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

// What controllers of other engines call: a bracket around updates, each of which is a reload.
TEST_F(EngineServiceTest, UpdatesInABracketAreReloadsAndNothingElseIsTaken) {
  EngineService service(Options());
  service.LoadModel();
  RpcClient controller("controller", service.endpoint());
  const auto call = [&](const std::string& method, const Json& params = Json::object()) {
    return controller.Call(method, params, Deadline::After(std::chrono::seconds(20)));
  };
  const Json second = {{"load_format", "dummy"}, {"seed", 2}};
  EXPECT_EQ(call("init_weight_transfer_engine")["pids"], service.Ready()["pids"]);
  EXPECT_THAT([&] { call("update_weights", second); },
              ThrowsMessage<Error>(HasSubstr("start_weight_update must be called before update_weights.")));
  EXPECT_THAT([&] { call("finish_weight_update"); },
              ThrowsMessage<Error>(HasSubstr("called without a matching start_weight_update.")));
  call("start_weight_update");
  EXPECT_THAT([&] { call("start_weight_update"); }, ThrowsMessage<Error>(HasSubstr("is already active")));
  EXPECT_EQ(call("update_weights", second)["version"]["step"], 2);
  EXPECT_EQ(call("finish_weight_update")["version"]["step"], 2);
  EXPECT_EQ(call("status")["version"]["step"], 2);
}

}  // namespace
}  // namespace layercast
