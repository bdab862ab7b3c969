// What a publisher remembers of the versions that it has offered, and which it keeps for a while for somebody.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "layercast/publisher.h"
#include "src/net/keys/keys.h"
#include "src/session/ask/offered_question.h"
#include "src/session/ask/publisher_status.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Deadline Soon() { return Deadline::After(std::chrono::seconds(20)); }

Weights Small(float value) {
  const auto owner = std::make_shared<const std::vector<float>>(4, value);
  const auto* const bytes = reinterpret_cast<const std::byte*>(owner->data());
  const std::vector<NamedTensor> named = {{"w", {DType::kF32, {4}, bytes, {}}, owner}};
  return {.specs = {}, .walk = [named](std::span<const std::string>) { return MakeWeightsIterator(named); }};
}

class OfferedSinceTest : public ::testing::Test {
 protected:
  Version Publish(std::uint64_t step, const std::string& run, const std::string& lineage = "run") {
    const float value = static_cast<float>(step) + (run == "a" ? 0 : 0.5F);
    return publisher_.Publish({.lineage = lineage, .step = step, .run = run}, Small(value)).version();
  }
  wire::OfferedVersions Since(const Version& version) {
    return OfferedQuestion(kept_, publisher_.endpoint(), {}, {version.lineage, version.step, version.digest})
        .Answer(Soon());
  }
  void Hold(const Version& version, std::uint64_t lease_ms) {
    AskVersions(publisher_.endpoint(), {}, wire::HoldVersion{version.lineage, version.step, version.digest, lease_ms},
                Soon());
  }
  static std::vector<std::string> Names(const std::vector<wire::OfferedName>& offered) {
    std::vector<std::string> names;
    for (const auto& name : offered) names.push_back(name.run + ":" + name.lineage + "@" + std::to_string(name.step));
    return names;
  }
  std::vector<std::uint64_t> Kept() {
    std::vector<std::uint64_t> steps;
    for (const KeptVersion& kept : publisher_.Versions().versions) {
      if (!kept.evicted) steps.push_back(kept.version.step);
    }
    return steps;
  }

  KeptPeers kept_;  // a connection for all questions
  Publisher publisher_{PublisherOptions{.retained_versions = 2, .channels = {"zmq"}}};
};

TEST_F(OfferedSinceTest, AreNamedInTheirOrderThoughTheyAreKeptNoLonger) {
  const Version first = Publish(1, "a");
  for (std::uint64_t step = 2; step <= 5; ++step) Publish(step, "a");
  const wire::OfferedVersions since = Since(first);
  EXPECT_TRUE(since.known);
  EXPECT_FALSE(since.shadowed);
  EXPECT_THAT(Names(since.since), ElementsAre("a:run@2", "a:run@3", "a:run@4", "a:run@5"));
  EXPECT_THAT(Names(since.newest), ElementsAre("a:run@5"));
}

TEST_F(OfferedSinceTest, GoOnInTheRunThatFollows) {
  Publish(1, "a");
  const Version second = Publish(2, "a");
  Publish(3, "a");
  Publish(2, "b");
  const wire::OfferedVersions since = Since(second);
  EXPECT_TRUE(since.known);
  EXPECT_TRUE(since.shadowed);
  EXPECT_THAT(Names(since.since), ElementsAre("a:run@3", "b:run@2"));
  EXPECT_THAT(Names(since.newest), ElementsAre("b:run@2"));
}

TEST_F(OfferedSinceTest, AreToldByStepsToWhoServesWhatThePublisherNeverHad) {
  for (std::uint64_t step = 3; step <= 5; ++step) Publish(step, "a");
  Publish(9, "a", "other");
  const wire::OfferedVersions since = Since({"run", 3, {7, 7}});
  EXPECT_FALSE(since.known);
  EXPECT_THAT(Names(since.since), ElementsAre("a:run@4", "a:run@5"));
  EXPECT_THAT(Names(since.newest), ElementsAre("a:run@5"));
  EXPECT_TRUE(Since({"run", 4, {}}).known);  // by its name
  EXPECT_THAT(Names(Since({"nobody's", 1, {}}).newest), ElementsAre("a:other@9"));
}

TEST_F(OfferedSinceTest, TheNewestIsNoneThatWasEvicted) {
  Publish(1, "a");
  publisher_.Evict(Publish(2, "a"));
  EXPECT_THAT(Names(Since({"run", 1, {}}).newest), ElementsAre("a:run@1"));
  publisher_.Evict(publisher_.Versions().Named("run@1").version);
  EXPECT_THAT(Names(Since({"run", 1, {}}).newest), IsEmpty());
}

TEST_F(OfferedSinceTest, AVersionThatIsHeldStaysUntilItIsLetGo) {
  const Version first = Publish(1, "a");
  Hold(first, 60'000);
  for (std::uint64_t step = 2; step <= 4; ++step) Publish(step, "a");
  EXPECT_THAT(Kept(), ElementsAre(1, 3, 4));
  EXPECT_THAT(ErrorOf([&] { publisher_.Evict(first); }, ErrorCode::kFailedPrecondition), HasSubstr("is pinned"));
  Hold(first, 0);
  EXPECT_THAT(Kept(), ElementsAre(3, 4));
  EXPECT_THAT(ErrorOf([&] { Hold(first, 60'000); }, ErrorCode::kNotFound), HasSubstr("is not kept here"));
}

}  // namespace
}  // namespace layercast
