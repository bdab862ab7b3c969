// Calls that wait for a version: when they are answered, and what with.
#include "engine_side/server/reload/version_waits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "layercast/error.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using ::testing::HasSubstr;

constexpr std::chrono::minutes kLong{10};

Version WaitedAt(std::uint64_t step) { return {"run", step, {}}; }

// The answer to one call.
struct Answered {
  std::shared_ptr<std::promise<Json>> answer = std::make_shared<std::promise<Json>>();
  std::future<Json> future = answer->get_future();
  RpcReply Reply(std::stop_token abandoned = {}) {
    return RpcReply([to = answer](Json json) { to->set_value(std::move(json)); }, std::move(abandoned));
  }
};

class VersionWaitsTest : public ::testing::Test {
 protected:
  std::atomic<std::uint64_t> step_{1};
  VersionWaits waits_{[this] { return std::optional(WaitedAt(step_)); }};
};

TEST_F(VersionWaitsTest, AnswersOnceTheVersionOrALaterOneIsServed) {
  Answered at_once, later;
  waits_.Add(WaitedAt(1), Deadline::After(kLong), at_once.Reply());
  EXPECT_EQ(at_once.future.get()["result"]["version"]["step"], 1);
  waits_.Add(WaitedAt(2), Deadline::After(kLong), later.Reply());
  step_ = 3;
  waits_.Notice();
  EXPECT_EQ(later.future.get()["result"]["version"]["step"], 3);
}

TEST_F(VersionWaitsTest, SaysAtTheDeadlineWhatIsServed) {
  for (const Version& least : {WaitedAt(2), Version{"other", 1, {}}}) {
    Answered late;
    waits_.Add(least, Deadline::After(std::chrono::milliseconds(0)), late.Reply());
    const Json error = late.future.get()["error"];
    EXPECT_EQ(error["code"], "deadline_exceeded");
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("expected " + least.lineage + "@"));
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("serves run@1"));
  }
}

TEST_F(VersionWaitsTest, TakesNoMoreThanItSaysAndForgetsThoseWhoseCallersHaveGone) {
  std::stop_source gone;
  std::vector<Answered> calls(VersionWaits::kMost);
  for (Answered& call : calls) waits_.Add(WaitedAt(9), Deadline::After(kLong), call.Reply(gone.get_token()));
  Answered more;
  EXPECT_THAT(testing::ErrorOf([&] { waits_.Add(WaitedAt(9), Deadline::After(kLong), more.Reply()); },
                               ErrorCode::kResourceExhausted),
              HasSubstr("1024 calls wait already"));
  gone.request_stop();
  waits_.Notice();
  // Forgotten on the other thread: asks until there is room.
  while (true) {
    try {
      waits_.Add(WaitedAt(1), Deadline::After(kLong), more.Reply());
      break;
    } catch (const Error&) {
      std::this_thread::yield();
    }
  }
  EXPECT_TRUE(more.future.get().contains("result"));
}

TEST_F(VersionWaitsTest, AnswersThoseWhoWaitWhenTheEngineEnds) {
  Answered waits, too_late;
  waits_.Add(WaitedAt(9), Deadline::After(kLong), waits.Reply());
  waits_.Close();
  EXPECT_EQ(waits.future.get()["error"]["code"], "cancelled");
  EXPECT_THROW(waits_.Add(WaitedAt(9), Deadline::After(kLong), too_late.Reply()), Error);
}

}  // namespace
}  // namespace layercast
