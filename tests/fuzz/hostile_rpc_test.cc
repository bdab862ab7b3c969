// Clients that speak RPC and mean it ill: valid calls in any order with parameters that lie, messages that are nearly
// some, and clients gone at any moment. Each gets an error at most; an honest client beside them is answered, and the
// engine serves what it did.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <limits>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "engine_side/server/engine_service.h"
#include "src/control/rpc.h"
#include "tests/engine_side/model/config/minimal_config.h"
#include "tests/fuzz/damage.h"
#include "tests/fuzz/fuzz_inputs.h"
#include "tests/support/child_process.h"
#include "tests/support/temp_folder.h"

namespace layercast {
namespace {

Deadline InTime() { return Deadline::After(std::chrono::seconds(20)); }

// All of an engine's, and some that are none. What may rightly change what is served is here made to fail.
constexpr const char* kMethods[] = {"status",
                                    "generate",
                                    "reload_weights",
                                    "stage_weights",
                                    "prepare_weights",
                                    "commit_weights",
                                    "abort_weights",
                                    "hold_weights",
                                    "pause",
                                    "resume",
                                    "sleep",
                                    "wake_up",
                                    "verify",
                                    "export",
                                    "lend_weights",
                                    "load_adapter",
                                    "unload_adapter",
                                    "pin_adapter",
                                    "list_adapters",
                                    "digests",
                                    "init_weight_transfer_engine",
                                    "start_weight_update",
                                    "update_weights",
                                    "finish_weight_update",
                                    "",
                                    "no_such_method"};
constexpr const char* kFields[] = {"tokens",
                                   "prompts",
                                   "max_new",
                                   "temperature",
                                   "top_k",
                                   "top_p",
                                   "seed",
                                   "stop_tokens",
                                   "least_version",
                                   "logprobs",
                                   "adapter",
                                   "weights_path",
                                   "is_checkpoint_format",
                                   "load_format",
                                   "secondary_weights",
                                   "publisher",
                                   "engine",
                                   "lineage",
                                   "step",
                                   "digest",
                                   "partial",
                                   "may_keep",
                                   "channel",
                                   "pause_mode",
                                   "adapters",
                                   "keep_adapters",
                                   "ticket",
                                   "reason",
                                   "mode",
                                   "tags",
                                   "directory",
                                   "name",
                                   "wait",
                                   "pinned",
                                   "last_report",
                                   "lent",
                                   "previous",
                                   "kept",
                                   "timeout_ms"};

class HostileClients {
 public:
  HostileClients(const std::string& endpoint, std::uint32_t seed)
      : endpoint_(endpoint), damage_(seed, std::string_view("{}[],:\"0123456789-.eE\\ \0\xff\xc3", 27)) {}

  void Say(std::size_t messages) {
    while (said_ < messages && !::testing::Test::HasFailure()) Live();
  }

 private:
  void Live() {
    if (lives_++ % kLivesOfAContext == 0) context_.emplace(1);  // which waits until all its sockets have let go
    zmq::socket_t socket(*context_, zmq::socket_type::dealer);
    socket.set(zmq::sockopt::linger, Below(2) == 0 ? 0 : 100);
    socket.set(zmq::sockopt::sndtimeo, 20'000);
    socket.connect(endpoint_);
    for (std::size_t left = 1 + Below(20); left > 0; --left, ++said_) {
      std::string text = Message().dump(-1, ' ', false, Json::error_handler_t::replace);
      // A reload that is made to fail might succeed otherwise.
      if (Below(4) == 0 && text.find("fails_in") == std::string::npos) text = damage_.Apply(text);
      ASSERT_TRUE(socket.send(zmq::buffer(text)))
          << "the server takes nothing any more, after " << said_ << " messages";
      zmq::message_t answer;
      while (Below(2) == 0 && socket.recv(answer, zmq::recv_flags::dontwait)) CheckAnswer(answer);
    }
  }

  static void CheckAnswer(const zmq::message_t& answer) {
    const Json json = Json::parse(answer.to_string_view());
    if (json.contains("error")) {
      EXPECT_NE(json["error"]["code"], "internal") << json;
    }
  }

  Json Message() {
    switch (Below(12)) {
      case 0: return {{"ping", Value()}};
      case 1: return {{"cancel", Below(8)}};
      case 2: return Value();
      case 3: return {{"id", Value()}, {"method", Value()}, {"params", Value()}};
      default:
        return {{"id", Below(8)}, {"method", method_ = kMethods[Below(std::size(kMethods))]}, {"params", Params()}};
    }
  }

  Json Params() {
    Json params = Json::object();
    for (std::size_t fields = Below(5); fields > 0; --fields) params[kFields[Below(std::size(kFields))]] = Value();
    const auto is = [&](const std::vector<std::string_view>& methods) {
      return std::ranges::find(methods, method_) != methods.end();
    };
    if (is({"reload_weights", "stage_weights", "update_weights"})) {
      params["fails_in"] = Below(2) == 0 ? "stage" : "prepare";
      params.erase("adapter");
      if (Below(2) == 0) params.update({{"load_format", "dummy"}, {"seed", 7}});
    }
    if (is({"stage_weights", "pause"})) params["lease_ms"] = 1 + Below(20);
    if (is({"sleep"})) params["level"] = Value(3);
    if (is({"generate"}) && Below(2) == 0) params.update({{"tokens", {10}}, {"max_new", 1 + Below(4)}});
    return params;
  }

  // Of any kind. Numbers are none below `least`, but negative ones.
  Json Value(std::int64_t least = 0) {
    const Json values[] = {nullptr,
                           true,
                           false,
                           least,
                           least + 1,
                           least + 7,
                           -1,
                           std::numeric_limits<std::int64_t>::max(),
                           std::numeric_limits<std::uint64_t>::max(),
                           1e300,
                           -0.5,
                           "",
                           "x",
                           "wait",
                           "tcp://127.0.0.1:1",
                           "nonsense://",
                           "../..",
                           std::string(300, 'n'),
                           "\x1b[2J",
                           "\xff",
                           Json::array(),
                           Json::object(),
                           Json::array({1, -1, "x"}),
                           Json::array({Json::object({{"prefix", 1}, {"path", "/etc"}})}),
                           Json::object({{"lineage", "run"}, {"step", -1}})};
    return values[Below(std::size(values))];
  }

  std::size_t Below(std::size_t bound) { return damage_.Below(bound); }

  static constexpr std::size_t kLivesOfAContext = 64;

  std::optional<zmq::context_t> context_;
  std::size_t lives_ = 0;
  const std::string endpoint_;
  Damage damage_;
  std::string_view method_;
  std::size_t said_ = 0;
};

TEST(HostileClientsTest, CostAnHonestClientOfTheServerNothing) {
  const TempFolder folder;
  RpcServer server("ipc://" + (folder / "engine").native(), Keys(),
                   [](const std::string& method, const Json& params, const RpcReply& reply) {
                     if (method.empty()) throw Error(ErrorCode::kNotFound, "no method");
                     reply.Result({{"method", method}, {"params", params}});
                   });
  std::atomic<int> answered{0};
  std::jthread honest([&](const std::stop_token& stop) {
    RpcClient client("engine", server.endpoint());
    while (!stop.stop_requested() || answered == 0) {
      const Json params = {{"number", answered.load()}};
      ASSERT_EQ(client.Call("echo", params, InTime()), (Json{{"method", "echo"}, {"params", params}}));
      ++answered;
    }
  });
  HostileClients(server.endpoint(), 51).Say(FuzzInputs(5'000));
  honest.request_stop();
  honest.join();
  EXPECT_GT(answered, 0);
}

// No more than so many calls wait at once.
void AwaitTurn(RpcClient& client) {
  for (const Deadline deadline = InTime();; std::this_thread::yield()) {
    try {
      client.Call("digests", Json::object(), InTime());
      return;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kResourceExhausted || deadline.Passed()) throw;
    }
  }
}

// Each stage, pause and reload takes an engine some milliseconds, in which the others wait.
TEST(HostileClientsTest, LeaveAnEngineWithWhatItServed) {
  constexpr std::size_t kMost = 20'000;
  const TempFolder folder;
  folder.Write("config.json", testing::MinimalConfig().dump());
  EngineServiceOptions options;
  options.ranks.program = test::FolderOfThisProgram() + "/scripted_rank";
  options.ranks.model = folder.path();
  options.first_load = {{"load_format", "dummy"}, {"seed", 1}};
  EngineService service(options);
  service.LoadModel();
  const Json version = service.Ready()["version"];
  HostileClients hostile(service.endpoint(), 52);
  RpcClient client("controller", service.endpoint());
  const std::size_t messages = std::min(FuzzInputs(400), kMost);
  for (std::size_t said = 0; said < messages && !::testing::Test::HasFailure(); said += 200) {
    hostile.Say(said + 200);
    AwaitTurn(client);  // behind all that they have asked for
    client.Call("resume", Json::object(), InTime());
    const Json asked = {{"tokens", {10}}, {"max_new", 2}};
    EXPECT_EQ(client.Call("generate", asked, InTime())["tokens"], (Json{11, 12}));
    EXPECT_EQ(client.Call("status", Json::object(), InTime())["version"], version);
  }
}

}  // namespace
}  // namespace layercast
