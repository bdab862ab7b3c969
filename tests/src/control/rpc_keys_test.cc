// Calls between processes that have keys: who is answered, and what the others are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <string>

#include "layercast/error.h"
#include "src/control/rpc.h"
#include "src/net/keys/key_folder.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_folder.h"

namespace layercast::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

Deadline Soon() { return Deadline::After(milliseconds(20'000)); }

class RpcKeysTest : public ::testing::Test {
 protected:
  RpcKeysTest() {
    MakeServerFolder(folder_ / "server");
    key_ = MakeClientFolder(folder_ / "client", folder_ / "server");
  }
  void Admit(const std::string& roles) {
    std::ofstream(folder_ / "fresh") << "# list\n" << (roles.empty() ? "" : ToText(key_) + " " + roles + "\n");
    std::filesystem::rename(folder_ / "fresh", folder_ / "server/clients");
  }
  Keys KeysIn(const std::string& name) const { return Keys::From({.folder = folder_ / name}); }
  static void Echo(const std::string& method, const Json& params, const RpcReply& reply) {
    if (method == "pause") return;  // which never holds
    reply.Result(params);
  }

  TempFolder folder_;
  PublicKey key_{};
};

TEST_F(RpcKeysTest, AnAdmittedKeyIsAnsweredInItsRoleAlone) {
  Admit("read");
  const RpcServer server("tcp://127.0.0.1:0", KeysIn("server"), Echo);
  RpcClient client("engine", server.endpoint(), KeysIn("client"));
  EXPECT_EQ(client.Call("status", {{"a", 1}}, Soon())["a"], 1);
  EXPECT_THAT(ErrorOf([&] { client.Call("reload_weights", Json::object(), Soon()); }, kDenied),
              AllOf(HasSubstr(ShortText(key_)), HasSubstr("role 'reload'"), HasSubstr("clients")));
  Admit("read,reload");
  const Deadline deadline = Soon();  // within a second
  const auto allowed = [&] {
    try {
      client.Call("reload_weights", Json::object(), Soon());
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  while (!allowed()) ASSERT_FALSE(deadline.Passed());
}

TEST_F(RpcKeysTest, ACallWaitsUntilItsKeyIsAdmitted) {
  Admit("");
  const RpcServer server("tcp://127.0.0.1:0", KeysIn("server"), Echo);
  std::future<Json> answer = std::async(std::launch::async, [&] {
    RpcClient client("engine", server.endpoint(), KeysIn("client"), milliseconds(500));  // so long may it be silent
    return client.Call("status", {{"a", 1}}, Soon());
  });
  EXPECT_EQ(answer.wait_for(milliseconds(1200)), std::future_status::timeout);
  Admit("read");
  EXPECT_EQ(answer.get()["a"], 1);
}

TEST_F(RpcKeysTest, ACallOfAnUnknownKeySaysSoWhenItsTimeIsUp) {
  Admit("");
  const RpcServer server("tcp://127.0.0.1:0", KeysIn("server"), Echo);
  RpcClient client("engine", server.endpoint(), KeysIn("client"));
  EXPECT_THAT(ErrorOf([&] { client.Call("status", {}, Deadline::After(milliseconds(500))); }, kDenied),
              AllOf(HasSubstr("engine tcp://"), HasSubstr("does not know this key: " + ShortText(key_))));
}

TEST_F(RpcKeysTest, ClientsWithoutKeysOrWithAnotherServersAreToldWhy) {
  const RpcServer server("tcp://127.0.0.1:0", KeysIn("server"), Echo);
  RpcClient without("engine", server.endpoint(), Keys(), milliseconds(500));
  EXPECT_THAT(ErrorOf([&] { without.Call("status", {}, Soon()); }, kDenied), HasSubstr("wants keys, none given"));
  MakeServerFolder(folder_ / "other");
  RpcClient stranger("engine", server.endpoint(), KeysIn("other"), milliseconds(500));
  EXPECT_THAT(ErrorOf([&] { stranger.Call("status", {}, Soon()); }, kDenied), HasSubstr("another server key than"));
}

TEST_F(RpcKeysTest, ARevokedKeyLosesTheCallThatIsUnderWay) {
  Admit("reload");
  const RpcServer server("tcp://127.0.0.1:0", KeysIn("server"), Echo);
  RpcClient client("engine", server.endpoint(), KeysIn("client"));
  std::future<std::string> error =
      std::async(std::launch::async, [&] { return ErrorOf([&] { client.Call("pause", Json::object(), Soon()); }); });
  EXPECT_EQ(error.wait_for(milliseconds(700)), std::future_status::timeout);
  Admit("");
  EXPECT_THAT(error.get(), HasSubstr("the connection was lost"));
  EXPECT_THAT(ErrorOf([&] { client.Call("status", {}, Deadline::After(milliseconds(700))); }, kDenied),
              HasSubstr("does not know this key"));
}

TEST_F(RpcKeysTest, AnAddressBeyondLoopbackNeedsKeysOrInsecure) {
  const auto bind = [](const Keys& keys) { RpcServer("tcp://0.0.0.0:0", keys, Echo); };
  EXPECT_THAT(ErrorOf([&] { bind(Keys()); }, ErrorCode::kInvalidArgument),
              AllOf(HasSubstr("--keys"), HasSubstr("--insecure")));
  EXPECT_NO_THROW(bind(Keys::From({.insecure = true})));
  EXPECT_NO_THROW(bind(KeysIn("server")));
}

TEST_F(RpcKeysTest, KeysWorkOverASocketFileToo) {
  Admit("read");
  const RpcServer server("ipc://" + (folder_ / "socket").string(), KeysIn("server"), Echo);
  RpcClient client("engine", server.endpoint(), KeysIn("client"));
  EXPECT_EQ(client.Call("status", {{"a", 1}}, Soon())["a"], 1);
}

}  // namespace
}  // namespace layercast::testing
