// Which paths callers may name. The ranks are processes (scripted_rank.cc).
#include "engine_side/server/request_paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "engine_side/server/engine_service.h"
#include "layercast/error.h"
#include "tests/engine_side/model/config/minimal_config.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_folder.h"

namespace layercast {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class RequestPathsTest : public ::testing::Test {
 protected:
  RequestPathsTest() {
    fs::create_directories(root_ / "in/model");
    fs::create_directories(root_ / "out/model");
    fs::create_directory_symlink("model", root_ / "in/latest");
  }
  std::string At(const std::string& name) const { return (root_ / name).string(); }
  // Every call that has a path, with this one in each place that may have one.
  static std::vector<std::pair<std::string, Json>> CallsWith(const std::string& fine, const std::string& path) {
    return {
        {"reload_weights", {{"weights_path", path}}},
        {"reload_weights", {{"weights_path", path}, {"is_checkpoint_format", false}, {"partial", true}}},
        {"reload_weights", {{"weights_path", fine}, {"secondary_weights", {{{"prefix", "draft."}, {"path", path}}}}}},
        {"reload_weights", {{"store", path}}},
        {"stage_weights", {{"weights_path", path}}},
        {"stage_weights", {{"adapter", {{"name", "a"}, {"weights_path", path}}}}},
        {"update_weights", {{"weights_path", path}}},
        {"verify", {{"weights_path", path}}},
        {"verify", {{"weights_path", path}, {"adapter", "a"}}},
        {"load_adapter", {{"name", "a"}, {"weights_path", path}}},
        {"export", {{"directory", path}}},
    };
  }

  const TempFolder folder_;
  const fs::path root_ = fs::canonical(folder_.path());
};

TEST_F(RequestPathsTest, OfAllowedFoldersAreHandedOnAsTheyWereFound) {
  for (const char* endpoint : {"tcp://127.0.0.1:0", "ipc:///tmp/engine"}) {
    const RequestPaths paths({At("in")}, endpoint);
    const auto found = CallsWith(At("in/model"), At("in/model"));
    const auto asked = CallsWith(At("in/latest"), At("out/../in/latest/"));
    const auto refused = CallsWith(At("in/model"), At("out/model"));
    for (std::size_t i = 0; i < asked.size(); ++i) {
      EXPECT_EQ(paths.Confined(asked[i].second), found[i].second) << asked[i].second;
      EXPECT_THAT(testing::ErrorOf([&] { paths.Confined(refused[i].second); }, ErrorCode::kPermissionDenied),
                  AllOf(HasSubstr(At("out/model")), HasSubstr("'" + At("in") + "'")))
          << refused[i].second;
    }
  }
}

TEST_F(RequestPathsTest, AreAnyOverASocketOfTheUsersOwnAndNoneOverTcp) {
  for (const auto& [method, params] : CallsWith(At("in/latest"), At("out/model"))) {
    EXPECT_EQ(RequestPaths({}, "ipc:///tmp/engine").Confined(params), params);
    EXPECT_THAT(
        testing::ErrorOf([&] { RequestPaths({}, "tcp://127.0.0.1:0").Confined(params); }, ErrorCode::kPermissionDenied),
        AllOf(HasSubstr(root_.string()), HasSubstr("--allow-path DIR")));
  }
  const Json others = {
      {"publisher", "tcp://127.0.0.1:1"}, {"adapter", "a"}, {"weights_path", nullptr}, {"secondary_weights", 3}};
  EXPECT_EQ(RequestPaths({}, "tcp://127.0.0.1:0").Confined(others), others);
}

TEST_F(RequestPathsTest, AreAskedForByEveryMethodOfAnEngine) {
  folder_.Write("in/model/config.json", testing::MinimalConfig().dump());
  EngineServiceOptions options;
  options.ranks.program = test::FolderOfThisProgram() + "/scripted_rank";
  options.ranks.model = At("in/model");
  options.first_load = {{"weights_path", At("in/model")}};  // of whoever starts it, who may
  EngineService service(options);
  service.LoadModel();
  RpcClient controller("controller", service.endpoint());
  const auto call = [&](const std::string& method, const Json& params) {
    return controller.Call(method, params, Deadline::After(std::chrono::seconds(20)));
  };
  const Json served = service.Ready()["version"];
  call("start_weight_update", Json::object());
  for (const auto& [method, params] : CallsWith(At("in/model"), At("in/model"))) {
    EXPECT_THAT(testing::ErrorOf([&] { call(method, params); }, ErrorCode::kPermissionDenied),
                HasSubstr("'" + At("in/model") + "': this engine takes no paths"))
        << method << params;
  }
  EXPECT_EQ(service.Status()["version"], served);
  EXPECT_TRUE(
      call("reload_weights", Json::object())["ok"].get<bool>());  // what it was started from, which nobody names
}

}  // namespace
}  // namespace layercast
