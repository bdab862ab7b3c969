#include "engine_side/server/group/export_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "tests/support/temp_folder.h"

namespace layercast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using ::testing::UnorderedElementsAre;

std::vector<std::string> NamesIn(const TempFolder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) names.push_back(entry.path().filename());
  return names;
}

TEST(ExportFolder, ReplacesAnEarlierExportAndAllOfIt) {
  const TempFolder folder;
  for (const char* old : {"model-rank-0-part-0.safetensors", "model-rank-0-part-1.safetensors",
                          "model-rank-1-part-0.safetensors", "config.json", "notes.txt"}) {
    folder.Write(old, "old");
  }
  {
    const ExportFolder out(folder.path());
    out.Write("model-rank-0-part-0.safetensors", "new");
    out.Write("config.json", "new");
    out.Publish({"model-rank-0-part-0.safetensors", "config.json"});
  }
  EXPECT_THAT(NamesIn(folder), UnorderedElementsAre("model-rank-0-part-0.safetensors", "config.json", "notes.txt"));
  EXPECT_EQ(folder.Read("model-rank-0-part-0.safetensors"), "new");
}

// Of two new files the second one is missing.
TEST(ExportFolder, PutsAnEarlierExportBackWhenThePublishingFails) {
  const TempFolder folder;
  for (const char* old : {"model-rank-0-part-0.safetensors", "model-rank-1-part-0.safetensors", "config.json"}) {
    folder.Write(old, "old");
  }
  {
    const ExportFolder out(folder.path());
    out.Write("model-rank-0-part-0.safetensors", "new");
    EXPECT_THAT([&] { out.Publish({"model-rank-0-part-0.safetensors", "config.json"}); },
                ThrowsMessage<Error>(HasSubstr("config.json")));
  }
  EXPECT_THAT(NamesIn(folder), UnorderedElementsAre("model-rank-0-part-0.safetensors",
                                                    "model-rank-1-part-0.safetensors", "config.json"));
  EXPECT_EQ(folder.Read("model-rank-0-part-0.safetensors"), "old");
  EXPECT_EQ(folder.Read("config.json"), "old");
}

TEST(ExportFolder, TakesThePlaceOfNoFolder) {
  for (const char* name : {"config.json", "model-rank-1-part-0.safetensors"}) {
    const TempFolder folder;
    std::filesystem::create_directory(folder / name);
    const ExportFolder out(folder.path());
    out.Write("config.json", "new");
    EXPECT_THAT([&] { out.Publish({"config.json"}); },
                ThrowsMessage<Error>(AllOf(HasSubstr(name), HasSubstr("in the way"))));
    EXPECT_TRUE(std::filesystem::is_directory(folder / name));
  }
}

TEST(ExportFolder, IsNotThatOfAModel) {
  for (const char* name : {"model.safetensors", "model-00001-of-00002.safetensors", "model.safetensors.index.json",
                           "pytorch_model.bin", "consolidated.00.pt", "model-q8_0.gguf"}) {
    const TempFolder folder;
    folder.Write(name, "weights");
    folder.Write("config.json", "its own");
    EXPECT_THAT([&] { ExportFolder{folder.path()}; },
                ThrowsMessage<Error>(AllOf(HasSubstr(folder.path().string()), HasSubstr(name))));
    EXPECT_EQ(folder.Read("config.json"), "its own");
  }
}

TEST(ExportFolder, WhatWasNotPublishedLeavesNothing) {
  const TempFolder folder;
  { ExportFolder(folder.path()).Write("config.json", "half"); }
  EXPECT_THAT(NamesIn(folder), ::testing::IsEmpty());
}

}  // namespace
}  // namespace layercast
