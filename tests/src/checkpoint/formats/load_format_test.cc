#include "src/checkpoint/formats/load_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <fstream>
#include <sstream>

#include "layercast/error.h"
#include "src/checkpoint/formats/checkpoint.h"
#include "src/checkpoint/formats/survey.h"
#include "tests/src/checkpoint/formats/opening.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/temp_folder.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Names;
using testing::OpenError;

TEST(LoadFormat, AnUnknownNameIsAnsweredWithThoseKnown) {
  const TempFolder folder;
  EXPECT_EQ(OpenError(ErrorCode::kInvalidArgument, {.path = folder.path(), .load_format = "safetensor"}),
            "load format 'safetensor' is not known: expected auto, safetensors, mistral, pt, gguf, layered, "
            "sharded_state, dummy, remote");
}

TEST(LoadFormat, OneThatIsLeftOutSaysWhatToUseInstead) {
  const TempFolder folder;
  for (const char* name : {"npcache", "bitsandbytes", "tensorizer", "runai_streamer", "fastsafetensors", "flash_rl"}) {
    EXPECT_THAT(OpenError(ErrorCode::kUnsupported, {.path = folder.path(), .load_format = name}),
                ::testing::MatchesRegex("load format '.*' is not read: .* use .*|load format '.*' is not read: use .*|"
                                        "load format '.*' is not read: save .*, and use .*"))
        << name;
  }
  EXPECT_THAT(OpenError(ErrorCode::kNotFound, {.path = "meta-llama/Llama-3.2-1B"}),
              HasSubstr("names of a hub are not looked up: download it first"));
}

TEST(LoadFormat, WhatOnlyEnginesReadIsNoCheckpoint) {
  const TempFolder folder;
  for (const char* name : {"dummy", "remote", "sharded_state"}) {
    EXPECT_THAT(OpenError(ErrorCode::kUnsupported, {.path = folder.path(), .load_format = name}),
                HasSubstr("holds no checkpoint: only an engine loads it"));
  }
}

TEST(LoadFormat, AutoTakesTheFirstThatIsThere) {
  const std::vector<std::string> all = {"consolidated.safetensors", "m.gguf", "model.safetensors", "pytorch_model.bin"};
  EXPECT_THAT(ChooseLoader("auto", all)->Choose(all), ElementsAre("model.safetensors"));
  EXPECT_THAT(ChooseLoader("layered", all)->Choose(all), ElementsAre("model.safetensors"));
  EXPECT_THAT(ChooseLoader("mistral", all)->Choose(all), ElementsAre("consolidated.safetensors"));
  const std::vector<std::string> some = {"consolidated.safetensors", "m.gguf", "pytorch_model.bin"};
  EXPECT_THAT(ChooseLoader("auto", some)->Choose(some), ElementsAre("consolidated.safetensors"));
  const std::vector<std::string> torch = {
      "a.pt", "b.pth", "c.gguf", "optimizer.pt", "pytorch_model.bin", "training_args.bin"};
  EXPECT_THAT(ChooseLoader("auto", torch)->Choose(torch), ElementsAre("pytorch_model.bin"));
  EXPECT_THAT(ChooseLoader("auto", {"a.pt", "b.pth"})->Choose({"a.pt", "b.pth"}), ElementsAre("a.pt"));
  EXPECT_EQ(ChooseLoader("auto", {"config.json", "optimizer.bin"}), nullptr);
}

TEST(LoadFormat, FilesOfOtherFormatsAreToldNotRead) {
  const TempFolder folder;
  folder.Write("model.safetensors", OneTensorFile("a"));
  folder.Write("pytorch_model.bin", "not looked at");
  folder.Write("consolidated.safetensors", "not looked at");
  const CheckpointSurvey survey = SurveyCheckpoint({.path = folder.path()});
  EXPECT_TRUE(survey.problems.empty());
  EXPECT_THAT(survey.ignored, ElementsAre("consolidated.safetensors", "pytorch_model.bin"));
}

TEST(LoadFormat, SecondaryWeightsHaveTheirPrefix) {
  const TempFolder main;
  const TempFolder more;
  main.Write("model.safetensors", OneTensorFile("a"));
  more.Write("1.safetensors", OneTensorFile("a"));
  more.Write("model.safetensors.index.json", R"({"weight_map":{"a":"1.safetensors"}})");
  const CheckpointSource source{.path = main.path(), .secondary = {{"vision.", more.path()}}};
  const Checkpoint checkpoint = Checkpoint::Open(source);
  EXPECT_THAT(Names(checkpoint), ElementsAre("a", "vision.a"));
  EXPECT_EQ(checkpoint.Tensor("vision.a").name, "vision.a");
  EXPECT_THAT(OpenError(ErrorCode::kCorrupt, {.path = main.path(), .secondary = {{"", more.path()}}}),
              HasSubstr("tensor 'a': expected once, got it in 'model.safetensors' and in '1.safetensors'"));
  EXPECT_THAT(OpenError(ErrorCode::kNotFound, {.path = main.path(), .secondary = {{"x.", main / "nowhere"}}}),
              HasSubstr("nowhere': no such checkpoint"));
}

TEST(LoadFormat, AnIndexWhoseSizeIsWrongIsAWarning) {
  const TempFolder folder;
  folder.Write("1.safetensors", OneTensorFile("a"));
  const auto warnings = [&](const std::string& metadata) {
    folder.Write("model.safetensors.index.json",
                 "{\"metadata\":" + metadata + R"(,"weight_map":{"a":"1.safetensors"}})");
    const CheckpointSurvey survey = SurveyCheckpoint({.path = folder.path()});
    EXPECT_TRUE(survey.problems.empty());
    return survey.warnings;
  };
  EXPECT_THAT(warnings(R"({"total_size":9})"),
              ElementsAre(HasSubstr("metadata.total_size: expected the 8 bytes of its tensors, got 9")));
  EXPECT_THAT(warnings(R"({"total_size":8})"), ::testing::IsEmpty());
  EXPECT_THAT(warnings(R"({"total_size":"a lot","note":[{"total_size":1}]})"), ::testing::IsEmpty());
}

constexpr std::size_t kLarge = 1U << 20;

// Of the pages of a mapped file, those that are this process's memory now.
std::size_t ResidentKilobytes(const std::filesystem::path& path) {
  std::ifstream maps("/proc/self/smaps");
  std::size_t resident = 0;
  bool is_ours = false;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    std::string first;
    fields >> first;
    if (first.find('-') != std::string::npos) is_ours = line.ends_with(path.native());
    std::size_t kilobytes = 0;
    if (is_ours && first == "Rss:" && fields >> kilobytes) resident += kilobytes;
  }
  return resident;
}

TEST(LoadFormat, LayeredLetsGoOfATensorsPagesWithTheTensor) {
  const TempFolder folder;
  const auto path = folder.Write("model.safetensors", OneTensorFile("a", kLarge));
  for (const char* format : {"auto", "layered"}) {
    const Checkpoint checkpoint = Checkpoint::Open({.path = folder.path(), .load_format = format});
    NamedTensor tensor = checkpoint.Tensor("a");
    EXPECT_EQ(tensor.tensor.data[4 * kLarge - 1], std::byte{0});
    EXPECT_GE(ResidentKilobytes(path), 4 * kLarge / 1024) << format;
    tensor = {};
    EXPECT_EQ(ResidentKilobytes(path) == 0, std::string_view(format) == "layered") << format;
    EXPECT_EQ(checkpoint.Tensor("a").tensor.data[4 * kLarge - 1], std::byte{0}) << format;  // slow, not wrong
  }
}

TEST(LoadFormat, AFileThatBecomesShorterIsAnError) {
  const TempFolder folder;
  const auto path = folder.Write("model.safetensors", OneTensorFile("a", kLarge));
  const Checkpoint checkpoint = Checkpoint::Open(folder.path());
  std::filesystem::resize_file(path, 5000);
  try {
    checkpoint.Tensor("a");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
    EXPECT_THAT(error.what(),
                ::testing::MatchesRegex(".*model.safetensors': became shorter while it was read: expected "
                                        "41943.. bytes, got 5000"));
  }
}

// Large enough that a walk reads ahead.
TEST(LoadFormat, LargeCheckpointsAreWalkedInOrder) {
  const TempFolder folder;
  for (int i = 0; i < 9; ++i) {
    folder.Write(std::to_string(i) + ".safetensors", OneTensorFile("t" + std::to_string(i), kLarge / 4));
  }
  const Checkpoint checkpoint = Checkpoint::Open(folder.path());
  ASSERT_GE(checkpoint.total_bytes(), 8U << 20);
  const auto weights = checkpoint.Weights({8, 0, 3, 3});
  for (const char* name : {"t8", "t0", "t3", "t3"}) EXPECT_EQ(weights->Next()->name, name);
  EXPECT_FALSE(weights->Next());
}

}  // namespace
}  // namespace layercast
