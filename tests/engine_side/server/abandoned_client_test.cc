// What an engine's service does about a call whose answer nobody waits for any more: whatever was only to be answered
// ends or is not begun, and holds nothing up; what outlasts its answer is done. The ranks are processes
// (scripted_rank.cc).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <future>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "engine_side/server/engine_service.h"
#include "layercast/error.h"
#include "tests/engine_side/model/config/minimal_config.h"
#include "tests/engine_side/server/step_gate.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using ::testing::HasSubstr;

constexpr std::chrono::seconds kCallPatience{20};
// Beyond all patience, and past the token that kills a scripted rank.
const Json kLongAnswer = {{"tokens", {1000}}, {"max_new", 1'000'000}};
const Json kVersion2 = {{"load_format", "dummy"}, {"seed", 2}, {"pause_mode", "wait"}};

// An engine that serves version 1, whose steps wait for the gate.
class AbandonedServiceCalls : public ::testing::TestWithParam<std::string> {
 protected:
  AbandonedServiceCalls() {
    std::ofstream(gate_.folder() + "/config.json")
        << testing::ConfigWith({{"max_position_embeddings", 2'000'000}, {"vocab_size", 2'000}});
    EngineServiceOptions options;
    options.ranks.program = test::FolderOfThisProgram() + "/scripted_rank";
    options.ranks.model = gate_.folder();
    options.first_load = {{"load_format", "dummy"}, {"seed", 1}};
    options.endpoint = GetParam() == "tcp" ? "tcp://127.0.0.1:0" : "ipc://" + gate_.folder() + "/engine";
    service_.emplace(options);
    service_->LoadModel();
  }

  // A call of its own client.
  Json Call(const std::string& method, const Json& params = Json::object(), std::stop_token stop = {}) const {
    return RpcClient("controller", service_->endpoint())
        .Call(method, params, Deadline::After(kCallPatience).OrStop(std::move(stop)));
  }
  // Begins to generate, and waits for the first token to be asked for. The sequence goes on when the gate lets it.
  std::future<void> GenerateUntil(std::stop_token stop) const {
    auto call = std::async(std::launch::async, [this, stop = std::move(stop)] {
      const auto generate = [&] { Call("generate", kLongAnswer, stop); };
      EXPECT_THAT(testing::ErrorOf(generate, ErrorCode::kCancelled), HasSubstr("'generate'"));
    });
    gate_.AwaitStep();
    return call;
  }
  // Lets steps go on until the answer is there.
  Json Await(std::future<Json> answer) const {
    while (answer.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) gate_.Allow();
    return answer.get();
  }
  std::uint64_t ServedStep() const { return Call("status")["version"]["step"].get<std::uint64_t>(); }

  const testing::StepGate gate_;
  std::optional<EngineService> service_;
};

// A client that says one thing after another, and does not wait for answers in between.
class OrderedClient {
 public:
  explicit OrderedClient(const std::string& endpoint) {
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::rcvtimeo, 20'000);
    socket_.connect(endpoint);
  }
  void Say(const Json& message) { socket_.send(zmq::buffer(message.dump()), zmq::send_flags::none); }
  Json AwaitAnswerTo(int id) {
    for (zmq::message_t message; socket_.recv(message);) {
      Json answer = Json::parse(message.to_string_view());
      if (answer["id"] == id) return answer;
    }
    return {{"error", "no answer came"}};
  }

 private:
  zmq::context_t context_{1};
  zmq::socket_t socket_{context_, zmq::socket_type::dealer};
};

INSTANTIATE_TEST_SUITE_P(Over, AbandonedServiceCalls, ::testing::Values("tcp", "ipc"),
                         [](const auto& scheme) { return scheme.param; });

TEST_P(AbandonedServiceCalls, AReloadThatWaitsForSequencesDoesNotWaitForOneWhoseClientHasGone) {
  std::stop_source gone;
  std::future<void> generate = GenerateUntil(gone.get_token());
  std::future<Json> reload = std::async(std::launch::async, [this] { return Call("reload_weights", kVersion2); });
  gone.request_stop();
  generate.get();
  EXPECT_EQ(Await(std::move(reload))["version"]["step"], 2);
}

// The client itself lives on, as a trainer's controller does.
TEST_P(AbandonedServiceCalls, NorForOneWhoseClientHasGivenTheCallUp) {
  RpcClient client("controller", service_->endpoint());
  std::stop_source stop;
  std::future<void> generate = std::async(std::launch::async, [&] {
    const Deadline until = Deadline::After(kCallPatience).OrStop(stop.get_token());
    EXPECT_THAT(testing::ErrorOf([&] { client.Call("generate", kLongAnswer, until); }, ErrorCode::kCancelled),
                HasSubstr("'generate'"));
  });
  gate_.AwaitStep();
  stop.request_stop();
  generate.get();
  std::future<Json> reload = std::async(std::launch::async, [this] { return Call("reload_weights", kVersion2); });
  EXPECT_EQ(Await(std::move(reload))["version"]["step"], 2);
  EXPECT_EQ(client.Call("status", Json::object(), Deadline::After(kCallPatience))["version"]["step"], 2);
}

TEST_P(AbandonedServiceCalls, AReloadGoesOnThoughItsClientHasGoneAndWhatWasOnlyToBeAnsweredIsNotBegun) {
  std::stop_source gone;
  std::future<void> generate = GenerateUntil(gone.get_token());
  OrderedClient client(service_->endpoint());
  client.Say({{"id", 1}, {"method", "pause"}, {"params", {{"mode", "wait"}, {"lease_ms", 3'600'000}}}});
  client.Say({{"id", 2}, {"method", "pause"}, {"params", {{"mode", "keep"}, {"lease_ms", 3'600'000}}}});
  client.Say({{"id", 3}, {"method", "reload_weights"}, {"params", kVersion2}});
  for (const int id : {3, 2, 1}) client.Say({{"cancel", id}});
  client.Say({{"id", 4}, {"method", "status"}, {"params", Json::object()}});
  EXPECT_TRUE(
      client.AwaitAnswerTo(4).contains("result"));  // all that it said has been heard, and the sequence still goes on
  gone.request_stop();
  generate.get();
  for (const Deadline patience = Deadline::After(kCallPatience); ServedStep() != 2 && !patience.Passed();)
    gate_.Allow();
  EXPECT_EQ(ServedStep(), 2U);
  auto next = std::async(std::launch::async, [this] { return Call("generate", {{"tokens", {10}}, {"max_new", 1}}); });
  EXPECT_EQ(Await(std::move(next))["tokens"], Json{11}) << "nothing is paused";
}

TEST_P(AbandonedServiceCalls, AComparisonEndsOnItsRanks) {
  OrderedClient client(service_->endpoint());
  client.Say({{"id", 1}, {"method", "verify"}, {"params", {{"held", true}}}});
  client.Say({{"id", 2}, {"method", "digests"}, {"params", Json::object()}});
  gate_.AwaitStep();  // the comparison is under way
  client.Say({{"cancel", 1}});
  const Json digests = client.AwaitAnswerTo(2);
  EXPECT_TRUE(digests.contains("result")) << "a rank that still compares says none: " << digests;
}

}  // namespace
}  // namespace layercast
