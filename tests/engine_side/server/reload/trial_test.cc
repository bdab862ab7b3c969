// A version on trial: when an engine goes back, by which way, and what becomes of what is said of it.
#include "engine_side/server/reload/trial.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using testing::ErrorOf;
using ::testing::HasSubstr;

Version TriedAt(std::uint64_t step) { return {"run", step, {step, 1}}; }

// An engine that keeps what it served before, unless it is told not to. It takes any step of a publisher, but none that
// it is to fail at.
class TrialTest : public ::testing::Test {
 protected:
  Json Reload(const Json& params) {
    asked_.push_back(params);
    const bool back = params.value("previous", false);
    const std::optional<Version> wanted = back ? previous_ : TriedAt(params.value("step", std::uint64_t{0}));
    Json outcome = {{"ok", wanted && wanted->step != fails_at_ && !(back && keeps_nothing_)}, {"error", nullptr}};
    if (outcome["ok"].get<bool>()) {
      if (*wanted != served_) previous_ = served_;
      served_ = *wanted;
    } else {
      outcome["error"] = ErrorToJson({ErrorCode::kUnavailable, "it is to fail"});
    }
    outcome["version"] = VersionToJson(served_);
    return outcome;
  }
  Trial Made(bool keeps_previous = true) {
    return Trial({.reload = [this](const Json& params) { return Reload(params); },
                  .served = [this] { return served_; },
                  .previous = [this] { return previous_; },
                  .keeps_previous = keeps_previous});
  }
  static Json Take(std::uint64_t step, std::uint64_t lease_ms, const std::string& way_back = "") {
    Json params = {{"publisher", "tcp://p"}, {"step", step}, {"trial_ms", lease_ms}};
    if (!way_back.empty()) params["way_back"] = way_back;
    return params;
  }
  static std::string StateOf(const Trial& trial) { return trial.Status().at("state"); }

  std::optional<Version> served_ = TriedAt(1);
  std::optional<Version> previous_;
  std::uint64_t fails_at_ = 99;
  bool keeps_nothing_ = false;
  std::vector<Json> asked_;
};

TEST_F(TrialTest, GoesBackOnceItIsOverAndNobodyHasPromotedTheVersion) {
  Trial trial = Made();
  EXPECT_TRUE(trial.Status().is_null());
  EXPECT_EQ(trial.Reload(Take(2, 0))["trial"]["state"], "waiting");
  EXPECT_TRUE(trial.due().Passed());
  trial.GoBackIfDue();
  EXPECT_EQ(served_, TriedAt(1));
  EXPECT_EQ(StateOf(trial), "rolled_back");
  EXPECT_FALSE(trial.due().Passed());
  EXPECT_THAT(ErrorOf([&] { trial.Promote(Json::object()); }, ErrorCode::kFailedPrecondition),
              HasSubstr("on trial any more; " + TriedAt(2).ToString() + " was on trial last, and is rolled_back"));
}

TEST_F(TrialTest, IsOverForGoodOnceTheVersionIsPromoted) {
  Trial trial = Made();
  trial.Reload(Take(2, 0));
  EXPECT_EQ(trial.Promote({{"lineage", "run"}, {"step", 2}})["version"]["step"], 2);
  trial.GoBackIfDue();
  EXPECT_EQ(served_, TriedAt(2));
  EXPECT_EQ(StateOf(trial), "promoted");
  EXPECT_EQ(trial.Promote(Json::object())["version"]["step"], 2);  // again
  EXPECT_EQ(trial.Revoke(Json::object())["ok"], true);             // as long as it is served
  EXPECT_EQ(served_, TriedAt(1));
}

TEST_F(TrialTest, LastsForAsLongAsItIsHeld) {
  Trial trial = Made();
  trial.Reload(Take(2, 0));
  trial.Hold({{"step", 2}, {"lease_ms", 60'000}});
  EXPECT_FALSE(trial.due().Passed());
  trial.GoBackIfDue();
  EXPECT_EQ(served_, TriedAt(2));
}

TEST_F(TrialTest, IsOfTheVersionThatIsNamed) {
  Trial trial = Made();
  trial.Reload(Take(2, 60'000));
  for (const Json& other :
       {Json{{"step", 3}}, Json{{"lineage", "other"}}, Json{{"digest", TriedAt(3).digest.ToHex()}}}) {
    EXPECT_THAT(ErrorOf([&] { trial.Promote(other); }, ErrorCode::kFailedPrecondition), HasSubstr("not on trial"));
    EXPECT_THAT(ErrorOf([&] { trial.Revoke(other); }, ErrorCode::kFailedPrecondition), HasSubstr("not on trial"));
  }
  EXPECT_EQ(StateOf(trial), "waiting");
  EXPECT_THAT(ErrorOf([&] { trial.Reload(Take(3, 1)); }, ErrorCode::kFailedPrecondition),
              HasSubstr("on trial already"));
}

TEST_F(TrialTest, AReloadToWhatWasServedBeforeIsAVerdictAndToAnotherIsNone) {
  Trial trial = Made();
  for (const auto& [step, state] : {std::pair(1, "rolled_back"), std::pair(3, "superseded")}) {
    served_ = TriedAt(1);
    trial.Reload(Take(2, 60'000));
    trial.Reload({{"publisher", "tcp://p"}, {"step", step}});
    trial.Note();
    EXPECT_EQ(StateOf(trial), state);
    EXPECT_THROW(trial.Promote(Json::object()), Error);
  }
}

TEST_F(TrialTest, NeedsAWayBack) {
  Trial trial = Made(/*keeps_previous=*/false);
  EXPECT_THAT(ErrorOf([&] { trial.Reload(Take(2, 1)); }, ErrorCode::kFailedPrecondition),
              HasSubstr("a way back to " + TriedAt(1).ToString() + ": expected serve --keep-previous"));
  Json with_adapters = Take(2, 1, "tcp://p");
  with_adapters["adapters"] = "*";
  EXPECT_THAT(ErrorOf([&] { trial.Reload(with_adapters); }, ErrorCode::kUnsupported), HasSubstr("no adapters"));
  served_.reset();
  EXPECT_THAT(ErrorOf([&] { trial.Reload(Take(2, 1)); }, ErrorCode::kFailedPrecondition), HasSubstr("torn"));
  EXPECT_TRUE(asked_.empty());
}

TEST_F(TrialTest, GoesBackToThePublishersVersionWhereTheRanksKeepNone) {
  Trial trial = Made(/*keeps_previous=*/false);
  trial.Reload(Take(2, 0, "tcp://back"));
  previous_.reset();
  trial.GoBackIfDue();
  EXPECT_EQ(served_, TriedAt(1));
  EXPECT_EQ(asked_.back()["publisher"], "tcp://back");
  EXPECT_EQ(asked_.back()["digest"], TriedAt(1).digest.ToHex());
}

TEST_F(TrialTest, TriesThePublisherWhereTheRanksHaveLostTheirCopyAndAgainUntilItIsBack) {
  Trial trial = Made();
  trial.Reload(Take(2, 0, "tcp://back"));
  keeps_nothing_ = true;
  fails_at_ = 1;
  trial.GoBackIfDue();
  EXPECT_EQ(served_, TriedAt(2));
  EXPECT_EQ(StateOf(trial), "going_back");
  EXPECT_EQ(trial.Status()["error"]["message"], "it is to fail");
  EXPECT_FALSE(trial.due().Passed());
  fails_at_ = 99;
  EXPECT_EQ(trial.Revoke(Json::object())["ok"], true);  // at once
  EXPECT_EQ(served_, TriedAt(1));
  EXPECT_TRUE(trial.Status()["error"].is_null());
}

TEST_F(TrialTest, AReloadThatFailsOrBringsWhatIsServedIsNoTrial) {
  Trial trial = Made();
  fails_at_ = 2;
  EXPECT_TRUE(trial.Reload(Take(2, 0))["trial"].is_null());
  EXPECT_TRUE(trial.Reload(Take(1, 0))["trial"].is_null());
  EXPECT_TRUE(trial.Status().is_null());
}

}  // namespace
}  // namespace layercast
