// What a controller keeps of its engines' connections from call to call.
#include "src/control/engine_clients.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <memory>
#include <thread>

#include "layercast/error.h"

namespace layercast {
namespace {

std::ptrdiff_t OpenDescriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

class EngineClientsTest : public ::testing::Test {
 protected:
  static std::unique_ptr<RpcServer> Serve(const std::string& endpoint) {
    return std::make_unique<RpcServer>(endpoint, Keys(),
                                       [](const std::string& method, const Json& params, const RpcReply& reply) {
                                         if (method == "refuse") throw Error(ErrorCode::kUnsupported, "not today");
                                         reply.Result(params);
                                       });
  }
  Json Say(EngineClients& clients, const std::string& method, int number) {
    return clients.Use(0, [&](RpcClient& client) {
      return client.Call(method, {{"number", number}}, Deadline::After(std::chrono::seconds(20)));
    });
  }
};

TEST_F(EngineClientsTest, CallOverOneConnection) {
  const auto engine = Serve("tcp://127.0.0.1:0");
  EngineClients clients({engine->endpoint()}, Keys());
  EXPECT_EQ(Say(clients, "echo", 1)["number"], 1);
  const std::ptrdiff_t descriptors = OpenDescriptors();
  for (int number = 2; number < 10; ++number) EXPECT_EQ(Say(clients, "echo", number)["number"], number);
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

TEST_F(EngineClientsTest, ConnectAnewToAnEngineThatWasStartedAnew) {
  auto engine = Serve("tcp://127.0.0.1:0");
  const std::string endpoint = engine->endpoint();
  EngineClients clients({endpoint}, Keys());
  for (int number = 1; number < 4; ++number) {
    EXPECT_EQ(Say(clients, "echo", number)["number"], number);
    RpcClient* client = nullptr;
    clients.Use(0, [&](RpcClient& kept) { return client = &kept; });
    engine.reset();
    while (!client->WasLost()) std::this_thread::yield();
    engine = Serve(endpoint);
  }
}

TEST_F(EngineClientsTest, GoOnAfterAnErrorOfTheEngine) {
  const auto engine = Serve("tcp://127.0.0.1:0");
  EngineClients clients({engine->endpoint()}, Keys());
  EXPECT_THROW(Say(clients, "refuse", 1), Error);
  EXPECT_EQ(Say(clients, "echo", 2)["number"], 2);
}

}  // namespace
}  // namespace layercast
