// Which run of the trainer a version is of: what was given, or what the launcher says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "layercast/publisher.h"
#include "src/session/ask/publisher_status.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using testing::ErrorOf;
using ::testing::HasSubstr;

constexpr float kOfARun[] = {1, 2, 3, 4};

Weights WeightsOfARun() {
  return Weights::Once({{"w", DType::kF32, {4}}},
                       MakeWeightsIterator(std::vector<NamedTensor>{
                           {"w", {DType::kF32, {4}, reinterpret_cast<const std::byte*>(kOfARun), {}}, nullptr}}));
}

// What a launcher has put into the environment, for one test.
class Launched {
 public:
  explicit Launched(const std::optional<std::string>& elastic, const std::optional<std::string>& slurm = {}) {
    Set("TORCHELASTIC_RUN_ID", elastic);
    Set("SLURM_JOB_ID", slurm);
  }
  ~Launched() {
    Set("TORCHELASTIC_RUN_ID", {});
    Set("SLURM_JOB_ID", {});
  }
  Launched(const Launched&) = delete;
  Launched& operator=(const Launched&) = delete;

 private:
  static void Set(const char* variable, const std::optional<std::string>& value) {
    value ? ::setenv(variable, value->c_str(), 1) : ::unsetenv(variable);
  }
};

std::string RunLaunchedBy(const std::optional<std::string>& elastic, const std::optional<std::string>& slurm = {}) {
  const Launched launched(elastic, slurm);
  return RunFromEnvironment();
}

TEST(Run, IsWhatTheLauncherCallsIt) {
  EXPECT_EQ(RunLaunchedBy("job-7", "4711"), "job-7");
  EXPECT_EQ(RunLaunchedBy({}, "4711"), "4711");
  EXPECT_EQ(RunLaunchedBy("", "4711"), "4711");
  EXPECT_EQ(RunLaunchedBy("none", "4711"), "4711") << "torchrun calls each run so that has no --rdzv-id";
  EXPECT_EQ(RunLaunchedBy("none"), "");
  EXPECT_EQ(RunLaunchedBy({}), "");
  EXPECT_THAT(ErrorOf([] { RunLaunchedBy("a\nb"); }, ErrorCode::kInvalidArgument), HasSubstr("TORCHELASTIC_RUN_ID"));
  EXPECT_THAT(ErrorOf([] { RunLaunchedBy({}, std::string(1025, 'x')); }, ErrorCode::kInvalidArgument),
              HasSubstr("SLURM_JOB_ID"));
}

class PublishedRun : public ::testing::Test {
 protected:
  PublishedVersion Publish(const std::optional<std::string>& run) {
    const PublishMode mode = ++step_ % 2 == 0 ? PublishMode::kStream : PublishMode::kSnapshot;
    return publisher_.Publish({.lineage = "run", .step = step_, .mode = mode, .run = run}, WeightsOfARun());
  }
  std::string RunInStatus() {
    return AskPublisherStatus(publisher_.endpoint(), {}, Deadline::After(std::chrono::seconds(20))).versions.back().run;
  }

  Publisher publisher_{{}};
  std::uint64_t step_ = 0;
};

TEST_F(PublishedRun, IsTheGivenOneEvenAnEmptyOneOrElseTheLaunchers) {
  const Launched launched("job-7");
  EXPECT_EQ(Publish("mine").run(), "mine");
  EXPECT_EQ(RunInStatus(), "mine");
  EXPECT_EQ(Publish("").run(), "");
  EXPECT_EQ(RunInStatus(), "");
  EXPECT_EQ(Publish({}).run(), "job-7");
  EXPECT_EQ(RunInStatus(), "job-7");
}

TEST_F(PublishedRun, IsNoPartOfTheVersion) {
  Publisher other({});
  const auto publish = [](Publisher& publisher, const char* run) {
    return publisher.Publish({.lineage = "run", .step = 1, .run = run}, WeightsOfARun()).version();
  };
  EXPECT_EQ(publish(publisher_, "job-7"), publish(other, "job-8"));
}

TEST_F(PublishedRun, IsAName) {
  for (const std::string& none : {std::string("a\nb"), std::string("\xff"), std::string(1025, 'x')}) {
    EXPECT_THAT(ErrorOf([&] { Publish(none); }, ErrorCode::kInvalidArgument), HasSubstr("run '"));
  }
  EXPECT_EQ(Publish(std::string(1024, 'x')).run().size(), 1024U);
}

}  // namespace
}  // namespace layercast
