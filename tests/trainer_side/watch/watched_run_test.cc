// Checkpoints that a trainer saves while its folder is watched: each is published once, when it is whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "tests/support/error_of.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/temp_folder.h"
#include "trainer_side/watch/folder_watch.h"
#include "trainer_side/watch/watched_run.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::IsEmpty;

std::string OneTensor(const std::string& name, char value) {
  return SafetensorsBytes("{\"" + name + R"(": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})",
                          std::string(1, value));
}

class WatchedRunTest : public ::testing::Test {
 protected:
  using Clock = FolderWatch::Clock;

  void Write(const std::string& file, const std::string& bytes) {
    const std::filesystem::path path = folder_.path() / file;
    std::filesystem::create_directories(path.parent_path());
    // A new file in the place of an old one, whatever the resolution of the file system's clock.
    std::ofstream(path.string() + ".new", std::ios::binary) << bytes;
    std::filesystem::rename(path.string() + ".new", path);
  }
  void Save(const std::string& name, char value) { Write(name + "/model.safetensors", OneTensor("w", value)); }
  void PassTime() { now_ += std::chrono::seconds(2); }

  std::vector<std::uint64_t> Found() {
    std::vector<std::uint64_t> steps;
    for (const FoundCheckpoint& found : watch_.Look()) steps.push_back(found.step);
    return steps;
  }
  std::vector<std::string> Published(const Publisher& publisher) {
    std::vector<std::string> names;
    for (const KeptVersion& kept : publisher.Versions().versions) {
      names.push_back(std::to_string(kept.version.step) + (kept.run.empty() ? "" : " " + kept.run) +
                      (kept.shadowed ? " shadowed" : ""));
    }
    return names;
  }

  TempFolder folder_;
  Clock::time_point now_{};
  FolderWatch watch_{folder_.path().string(), std::chrono::seconds(2), [this] { return now_; }};
};

TEST_F(WatchedRunTest, StepsAreReadFromTheNamesThatTrainersGive) {
  for (const char* name : {"checkpoint-40", "step_40", "step-40", "global_step40", "global_step_40", "ckpt-40", "40"}) {
    EXPECT_EQ(StepOfFolder(name), 40U) << name;
  }
  for (const char* name : {"checkpoint", "checkpoint-", "checkpoint-4a", "best", "tmp-checkpoint-40", "step_-1", ""}) {
    EXPECT_EQ(StepOfFolder(name), std::nullopt) << name;
  }
}

TEST_F(WatchedRunTest, AFolderIsFoundOnceWhenNothingHasChangedForAWhile) {
  Save("checkpoint-1", 1);
  Save("best", 1);
  EXPECT_THAT(Found(), IsEmpty());
  PassTime();
  Write("checkpoint-1/optimizer.pt", "more");
  EXPECT_THAT(Found(), IsEmpty());
  PassTime();
  EXPECT_THAT(Found(), ElementsAre(1));
  PassTime();
  EXPECT_THAT(Found(), IsEmpty());
}

TEST_F(WatchedRunTest, AFolderThatSaysItIsStableIsFoundAtOnceIfItIsWhole) {
  Save("step_3", 1);
  Write("step_3/STABLE", "");
  Write("step_4/model.safetensors", OneTensor("w", 1).substr(0, 20));
  Write("step_4/STABLE", "");
  EXPECT_THAT(Found(), ElementsAre(3));
}

// As a trainer writes it: shard by shard, each file growing, the index last. However long it takes, nothing is found
// before all is there.
TEST_F(WatchedRunTest, AFolderThatIsHalfWrittenIsNeverFound) {
  const std::string index =
      R"({"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}})";
  const auto look = [&] {
    EXPECT_THAT(Found(), IsEmpty());
    PassTime();
    const std::vector<std::uint64_t> found = Found();
    PassTime();
    return found;
  };
  const std::string first = OneTensor("a", 1);
  for (const std::size_t length : {std::size_t{0}, std::size_t{4}, first.size() - 1}) {
    Write("checkpoint-9/model-00001-of-00002.safetensors", first.substr(0, length));
    EXPECT_THAT(look(), IsEmpty()) << length;
  }
  Write("checkpoint-9/model-00001-of-00002.safetensors", first);
  EXPECT_THAT(look(), IsEmpty());
  Write("checkpoint-9/model.safetensors.index.json", index);
  EXPECT_THAT(look(), IsEmpty());
  Write("checkpoint-9/model-00002-of-00002.safetensors", OneTensor("c", 1));  // not what the index says
  EXPECT_THAT(look(), IsEmpty());
  Write("checkpoint-9/model-00002-of-00002.safetensors", OneTensor("b", 1));
  EXPECT_THAT(look(), ElementsAre(9));
}

TEST_F(WatchedRunTest, AFolderThatCannotBeReadIsNamed) {
  FolderWatch watch(folder_.path() / "nowhere", std::chrono::seconds(2));
  EXPECT_THAT(ErrorOf([&] { watch.Look(); }, ErrorCode::kNotFound), ::testing::HasSubstr("nowhere"));
}

TEST_F(WatchedRunTest, WhatIsThereAtFirstIsPublishedAsFarAsItIsKept) {
  for (const char* name : {"checkpoint-5", "checkpoint-10", "checkpoint-20", "checkpoint-40"}) {
    Save(name, 1);
    Write(std::string(name) + "/STABLE", "");
  }
  Publisher publisher(PublisherOptions{.retained_versions = 2});
  WatchedRun run(publisher, {.parent = folder_.path(), .lineage = "run", .run = "", .retained_versions = 2},
                 [this] { return now_; });
  run.Look();
  EXPECT_THAT(Published(publisher), ElementsAre("20", "40"));
}

TEST_F(WatchedRunTest, ACheckpointThatIsWrittenAnewBeginsAResumedRun) {
  Publisher publisher(PublisherOptions{.retained_versions = 10});
  WatchedRun run(publisher, {.parent = folder_.path(), .lineage = "run", .run = "job", .retained_versions = 10},
                 [this] { return now_; });
  const auto save = [&](const std::string& name, char value) {
    Save(name, value);
    run.Look();
    PassTime();
    run.Look();
  };
  save("step_1", 1);
  save("step_2", 2);
  save("step_3", 3);
  save("step_2", 12);
  save("step_1", 1);  // of before the resumption, and written anew: that is another one
  EXPECT_THAT(Published(publisher), ElementsAre("1 job shadowed", "2 job shadowed", "3 job shadowed",
                                                "2 job-resumed-1 shadowed", "1 job-resumed-2"));
}

TEST_F(WatchedRunTest, ACheckpointThatCameTooLateIsLeftOut) {
  Publisher publisher(PublisherOptions{.retained_versions = 10});
  WatchedRun run(publisher, {.parent = folder_.path(), .lineage = "run", .run = "", .retained_versions = 10},
                 [this] { return now_; });
  for (const char* name : {"step_5", "step_4", "step_6"}) {
    Save(name, 1);
    Write(std::string(name) + "/STABLE", "");
    run.Look();
  }
  EXPECT_THAT(Published(publisher), ElementsAre("5", "6"));
}

TEST_F(WatchedRunTest, APublisherThatWasStartedAnewWithItsStoreGoesOnWithTheResumedRun) {
  const TempFolder stores;
  const PublisherOptions options{.retained_versions = 10, .store = {.path = stores / "store"}};
  const WatchedRun::Options watched{.parent = folder_.path(), .lineage = "run", .run = "job", .retained_versions = 10};
  const auto save = [this](const std::string& name, char value) {
    Save(name, value);
    Write(name + "/STABLE", "");
  };
  save("step_1", 1);
  {
    Publisher publisher(options);
    WatchedRun run(publisher, watched, [this] { return now_; });
    run.Look();
    save("step_1", 2);
    run.Look();
  }
  Publisher publisher(options);
  WatchedRun run(publisher, watched, [this] { return now_; });
  EXPECT_THAT(Published(publisher), ElementsAre("1 job shadowed", "1 job-resumed-1"));
  save("step_2", 3);
  run.Look();
  save("step_2", 4);
  run.Look();
  EXPECT_THAT(Published(publisher),
              ElementsAre("1 job shadowed", "1 job-resumed-1", "2 job-resumed-1 shadowed", "2 job-resumed-2"));
}

}  // namespace
}  // namespace layercast
