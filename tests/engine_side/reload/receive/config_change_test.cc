// Weights that fit, of another configuration than the engine's: from every source they are refused before anything is
// written, naming each field, unless the caller takes them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "layercast/publisher.h"
#include "src/wire/frames.h"
#include "tests/support/reload/receiver_rig.h"
#include "tests/support/reload/sharded_trainer.h"
#include "tests/support/temp_folder.h"

namespace layercast {
namespace {

using ::testing::AllOf;
using testing::Differences;
using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::ReceiverRig;

constexpr const char* kSame = R"({"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32})";
constexpr const char* kOther = R"({"num_attention_heads": 16, "head_dim": 16, "num_key_value_heads": 8})";
constexpr const char* kAnother = R"({"num_attention_heads": 4, "head_dim": 64, "num_key_value_heads": 2})";

// The source of a test, anew for each reload.
using MakeSource = std::function<ReloadSource()>;

// An engine that serves a version already, so that it is seen what a refusal leaves.
struct ServingRig : ReceiverRig {
  explicit ServingRig(CommitPolicy policy = CommitPolicy::kStaged)
      : ReceiverRig({.recipe = "fp8_per_channel"}, true, false, policy) {
    receiver->ReloadWeights(testing::EagerSource(before));
  }
  const testing::Weights before = Version(1);
  const testing::Weights after = Version(2);
};

void ExpectRefused(const MakeSource& other, const std::string& from) {
  for (const CommitPolicy policy : {CommitPolicy::kStaged, CommitPolicy::kUndo, CommitPolicy::kInPlace}) {
    ServingRig rig(policy);
    EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(other()); }, ErrorCode::kInvalidArgument),
                AllOf(HasSubstr(from + ": num_attention_heads: expected 8, got 16"),
                      HasSubstr(from + ": num_key_value_heads: expected 4, got 8"),
                      HasSubstr(from + ": head_dim: expected 32, got 16"), HasSubstr("--allow-config-change")));
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(rig.before)), IsEmpty());
    EXPECT_FALSE(rig.receiver->torn());
    EXPECT_EQ(rig.receiver->report().bytes, 0U);
    EXPECT_EQ(rig.receiver->report().config_changes.size(), 3U);
  }
}

void ExpectTakenIfAllowed(const MakeSource& other, const std::string& from) {
  ServingRig rig;
  ReloadSource source = other();
  source.allow_config_change = true;
  const ReloadReport report = rig.receiver->ReloadWeights(std::move(source));
  EXPECT_TRUE(report.config_compared);
  EXPECT_THAT(report.config_changes,
              ElementsAre(from + ": head_dim: expected 32, got 16", from + ": num_attention_heads: expected 8, got 16",
                          from + ": num_key_value_heads: expected 4, got 8"));
  EXPECT_THAT(report.ToJson(), HasSubstr("\"config_changes\":[\"" + from + ": head_dim"));
  EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(rig.after)), IsEmpty());
}

void ExpectTaken(ReloadSource source, bool compared) {
  ServingRig rig;
  const ReloadReport report = rig.receiver->ReloadWeights(std::move(source));
  EXPECT_EQ(report.config_compared, compared);
  EXPECT_THAT(report.config_changes, IsEmpty());
  EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(rig.after)), IsEmpty());
}

class ConfigChangeTest : public ::testing::Test {
 protected:
  void Publish(PublishMode mode, const std::string& config) {
    layercast::Weights weights{.specs = testing::SpecsOf(after_),
                               .walk = [this](std::span<const std::string>) { return after_.Stream(); },
                               .config = config};
    (void)publisher_.Publish({.lineage = "run", .step = ++step_, .mode = mode}, std::move(weights));
  }
  ReloadSource Published() const { return FromPublisher(publisher_.endpoint()); }

  const testing::Weights after_ = testing::RigWeights({}, 2);
  Publisher publisher_{PublisherOptions{}};
  std::uint64_t step_ = 0;
};

TEST_F(ConfigChangeTest, OfAPublisherIsRefusedUnlessItIsAllowed) {
  for (const PublishMode mode : {PublishMode::kSnapshot, PublishMode::kStream}) {
    Publish(mode, kOther);
    const MakeSource published = [&] { return Published(); };
    ExpectRefused(published, "publisher " + publisher_.endpoint());
    ExpectTakenIfAllowed(published, "publisher " + publisher_.endpoint());
    Publish(mode, kSame);
    ExpectTaken(Published(), true);
    Publish(mode, "");
    ExpectTaken(Published(), false);
  }
}

TEST_F(ConfigChangeTest, ThatCannotBeReadIsAChange) {
  Publish(PublishMode::kSnapshot, "{\"architectures\": 3}");
  ServingRig rig;
  EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(Published()); }, ErrorCode::kInvalidArgument),
              HasSubstr("publisher " + publisher_.endpoint() + ": cannot be compared: config.json: architectures"));
  ReloadSource source = Published();
  source.allow_config_change = true;
  EXPECT_EQ(rig.receiver->ReloadWeights(std::move(source)).config_changes.size(), 1U);
}

TEST_F(ConfigChangeTest, APublisherSendsNoMoreThanFits) {
  const std::string long_text(wire::kMaxConfigBytes + 1, ' ');
  EXPECT_THAT(ErrorOf([&] { Publish(PublishMode::kSnapshot, long_text); }, ErrorCode::kInvalidArgument),
              HasSubstr("config (bytes): expected 0 to 1048576, got 1048577"));
  Publish(PublishMode::kSnapshot, long_text.substr(std::string(kSame).size() + 1) + kSame);
  ExpectTaken(Published(), true);
}

class PartsConfigTest : public ::testing::Test {
 protected:
  // Two ranks' parts, of these configurations.
  void Publish(PublishMode mode, const std::vector<std::string>& configs) {
    trainer_.Publish(after_, testing::RowsOf, mode, [&](int rank, layercast::Weights weights) {
      weights.config = configs.at(static_cast<std::size_t>(rank));
      return weights;
    });
  }
  ReloadSource Published() const { return FromPublishers(trainer_.endpoints()); }
  std::string Of(std::size_t rank) const { return "publisher " + trainer_.endpoints()[1 - rank]; }

  const testing::Weights after_ = testing::RigWeights({}, 2);
  testing::ShardedTrainer trainer_{2};
};

TEST_F(PartsConfigTest, EveryPartIsCompared) {
  for (const PublishMode mode : {PublishMode::kSnapshot, PublishMode::kStream}) {
    Publish(mode, {kOther, kOther});
    ServingRig rig;
    EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(Published()); }, ErrorCode::kInvalidArgument),
                AllOf(HasSubstr(Of(0) + ": num_attention_heads: expected 8, got 16"),
                      HasSubstr(Of(1) + ": num_attention_heads: expected 8, got 16")));
    Publish(mode, {"", kOther});
    EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(Published()); }, ErrorCode::kInvalidArgument),
                AllOf(HasSubstr(Of(1) + ": num_attention_heads"), Not(HasSubstr(Of(0) + ":"))));
    Publish(mode, {kSame, ""});
    ExpectTaken(Published(), true);
  }
}

TEST_F(PartsConfigTest, PartsOfTwoConfigurationsAreRefusedEvenIfChangesAreAllowed) {
  const std::string pairs[][2] = {{kSame, kOther}, {kOther, kSame}, {kOther, kAnother}};
  for (const auto& [first, second] : pairs) {
    Publish(PublishMode::kSnapshot, {first, second});
    ServingRig rig;
    ReloadSource source = Published();
    source.allow_config_change = true;
    EXPECT_THAT(
        ErrorOf([&] { rig.receiver->ReloadWeights(std::move(source)); }, ErrorCode::kInvalidArgument),
        AllOf(HasSubstr("one version of two configurations"), HasSubstr(Of(0)), HasSubstr(Of(1)), HasSubstr("got 16")));
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(rig.before)), IsEmpty());
  }
}

void Write(const std::filesystem::path& path, const std::string& text) { std::ofstream(path) << text; }

TEST(FolderConfig, IsTheOneBesideTheFiles) {
  const TempFolder folder;
  testing::WriteCheckpoint(folder, testing::RigWeights({}, 2));
  ExpectTaken(FromPath(folder.path().string()), false);
  Write(folder / "config.json", kSame);
  ExpectTaken(FromPath(folder.path().string()), true);
  ExpectTaken(FromPath((folder / "model.safetensors").string()), true);
  Write(folder / "config.json", kOther);
  for (const std::string& path : {folder.path().string(), (folder / "model.safetensors").string()}) {
    const MakeSource from_path = [&] { return FromPath(path); };
    ExpectRefused(from_path, "checkpoint " + path);
    ExpectTakenIfAllowed(from_path, "checkpoint " + path);
  }
}

TEST(FolderConfig, IsComparedWhenTheFolderIsReadAgain) {
  const TempFolder folder;
  testing::WriteCheckpoint(folder, testing::RigWeights({}, 2));
  Write(folder / "config.json", kSame);
  ServingRig rig;
  rig.receiver->ReloadWeights(FromPath(folder.path().string()));
  Write(folder / "config.json", kOther);
  EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(FromOrigin()); }, ErrorCode::kInvalidArgument),
              HasSubstr("num_attention_heads: expected 8, got 16"));
}

TEST(FolderConfig, OfAPartialVersionIsComparedToo) {
  const TempFolder folder;
  testing::WriteCheckpoint(folder, testing::RigWeights({}, 2));
  Write(folder / "config.json", kOther);
  ExpectRefused(
      [&] {
        ReloadSource source = FromPath(folder.path().string());
        source.partial = true;
        return source;
      },
      "checkpoint " + folder.path().string());
}

TEST(IteratorConfig, IsWhatTheCallerSays) {
  const testing::Weights after = testing::RigWeights({}, 2);
  const auto of = [&](const char* config) {
    ReloadSource source = testing::EagerSource(after);
    source.config = config;
    return source;
  };
  ExpectRefused([&] { return of(kOther); }, "the iterator");
  ExpectTakenIfAllowed([&] { return of(kOther); }, "the iterator");
  ExpectTaken(of(kSame), true);
  ExpectTaken(of(""), false);
}

}  // namespace
}  // namespace layercast
