#include "src/checkpoint/formats/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <optional>

#include "layercast/error.h"
#include "src/checkpoint/formats/survey.h"
#include "src/checkpoint/rank_files.h"
#include "src/checkpoint/safetensors/weight_index.h"
#include "tests/src/checkpoint/formats/opening.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/temp_folder.h"

namespace layercast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Names;
using ::testing::Not;
using testing::OpenError;

std::string BytesOf(const NamedTensor& named) {
  return {reinterpret_cast<const char*>(named.tensor.data), static_cast<std::size_t>(named.tensor.num_bytes())};
}

std::string Index(const std::string& weight_map) {
  return R"({"metadata":{"total_size":1},"weight_map":)" + weight_map + "}";
}

TEST(Checkpoint, OneFile) {
  const TempFolder folder;
  folder.Write("some.safetensors", SafetensorsBytes(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", "xyz"));
  const Checkpoint checkpoint = Checkpoint::Open(folder / "some.safetensors");
  EXPECT_EQ(checkpoint.specs(), (std::vector<TensorSpec>{{"a", DType::kU8, {3}}}));
  EXPECT_EQ(checkpoint.total_bytes(), 3U);
  EXPECT_EQ(BytesOf(checkpoint.Tensor("a")), "xyz");
  EXPECT_EQ(checkpoint.Find("b"), -1);
  EXPECT_THROW(checkpoint.Tensor("b"), Error);
}

TEST(Checkpoint, TheLineageIsTheFoldersName) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "run-a");
  folder.Write("run-a/m.safetensors", OneTensorFile("w"));
  EXPECT_EQ(DefaultLineage(folder / "run-a"), "run-a");
  EXPECT_EQ(DefaultLineage(folder / "run-a/"), "run-a");
  EXPECT_EQ(DefaultLineage(folder / "run-a/."), "run-a");
  EXPECT_EQ(DefaultLineage(folder / "run-a/m.safetensors"), "run-a");
}

TEST(Checkpoint, TheLineageIsPrintableWhateverTheFoldersNameIs) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "run\n\xff");
  EXPECT_EQ(DefaultLineage(folder / "run\n\xff"), "run\\x0a\\xff");
}

TEST(Checkpoint, WithoutAnIndexEveryFileInNaturalOrder) {
  const TempFolder folder;
  for (const char* number : {"10", "9", "1"}) {
    folder.Write("model-" + std::string(number) + ".safetensors", OneTensorFile("t" + std::string(number)));
  }
  folder.Write("config.json", "{}");
  folder.Write(".hidden.safetensors", "not one");
  EXPECT_THAT(Names(Checkpoint::Open(folder.path())), ElementsAre("t1", "t9", "t10"));
}

TEST(Checkpoint, NumberedFilesWithoutAnIndexAreRefusedWhereOneIsMissing) {
  const TempFolder folder;
  folder.Write("model-00001-of-00002.safetensors", OneTensorFile("a"));
  EXPECT_THAT(OpenError(ErrorCode::kNotFound, folder.path()),
              HasSubstr("expected every file of those that are numbered, got none called "
                        "'model-00002-of-00002.safetensors'"));
  EXPECT_THAT(Names(Checkpoint::Open(folder / "model-00001-of-00002.safetensors")), ElementsAre("a"));
  folder.Write("model-00002-of-00002.safetensors", OneTensorFile("b"));
  EXPECT_THAT(Names(Checkpoint::Open(folder.path())), ElementsAre("a", "b"));
  folder.Write("more-00000-of-00003.safetensors", OneTensorFile("c"));  // some count from 0
  folder.Write("more-00002-of-00003.safetensors", OneTensorFile("d"));
  EXPECT_THAT(OpenError(ErrorCode::kNotFound, folder.path()),
              ::testing::EndsWith("got none called 'more-00001-of-00003.safetensors'"));
  folder.Write("more-00001-of-00003.safetensors", OneTensorFile("e"));
  for (const char* name : {"of-00002.safetensors", "x-1-of-2.safetensors", "x-0000a-of-00002.safetensors",
                           "x-00001-or-00002.safetensors", "00001-of-00002.safetensors"}) {
    folder.Write(name, OneTensorFile(name));  // numbered in no way that is known
  }
  EXPECT_EQ(Checkpoint::Open(folder.path()).specs().size(), 10U);
  folder.Write("z-00001-of-99999.safetensors", OneTensorFile("z"));
  EXPECT_THAT(OpenError(ErrorCode::kNotFound, folder.path()),
              ::testing::EndsWith("'z-00101-of-99999.safetensors' and 99898 more"));
}

TEST(Checkpoint, ATensorInTwoFilesIsRefusedNamingBoth) {
  const TempFolder folder;
  folder.Write("a.safetensors", OneTensorFile("w"));
  folder.Write("b.safetensors", OneTensorFile("w"));
  EXPECT_THAT(OpenError(ErrorCode::kCorrupt, folder.path()),
              HasSubstr("tensor 'w': expected once, got it in 'a.safetensors' and in 'b.safetensors'"));
}

TEST(Checkpoint, AnExportOfSeveralRanksIsRefusedOnceAsWhatItIs) {
  const TempFolder folder;
  for (const int rank : {0, 1}) {
    folder.Write(RankFileName(rank, 0), OneTensorFile("v"));
    folder.Write(RankFileName(rank, 1), OneTensorFile("w"));
  }
  EXPECT_THAT(OpenError(ErrorCode::kInvalidArgument, folder.path()),
              AllOf(HasSubstr("expected a checkpoint, got files of several ranks"), Not(HasSubstr("; "))));
}

TEST(Checkpoint, FilesThatTheIndexDoesNotMentionAreDropped) {
  const TempFolder folder;
  folder.Write("model-1.safetensors", OneTensorFile("a"));
  folder.Write("model-2.safetensors", OneTensorFile("b"));
  folder.Write("consolidated.safetensors", OneTensorFile("a"));
  folder.Write(kWeightIndexName, Index(R"({"b":"model-2.safetensors","a":"model-1.safetensors"})"));
  EXPECT_THAT(Names(Checkpoint::Open(folder.path())), ElementsAre("a", "b"));
  EXPECT_THAT(SurveyCheckpoint({.path = folder.path()}).ignored, ElementsAre("consolidated.safetensors"));
}

// DeepSeek and tools that merge models publish such files.
TEST(Checkpoint, TheIndexDecidesBetweenCopiesWhateverTheirShapes) {
  const TempFolder folder;
  const std::string of = ".safetensors";
  folder.Write("1.safetensors", OneTensorFile("a"));
  folder.Write("2.safetensors", SafetensorsBytes(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},
                                                     "b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
                                                 "stale"));
  folder.Write("3.safetensors", OneTensorFile("b"));
  folder.Write("4.safetensors", "never opened");
  const std::string index = Index(R"({"a":"1.safetensors","b":"3.safetensors","c":"2.safetensors"})");
  folder.Write(kWeightIndexName, index);
  EXPECT_THAT(OpenError(ErrorCode::kCorrupt, folder.path()),
              HasSubstr("tensor 'c': expected in '2.safetensors', got nothing of that name"));
  folder.Write("2.safetensors", SafetensorsBytes(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},
                                                     "b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]},
                                                     "c":{"dtype":"U8","shape":[1],"data_offsets":[5,6]}})",
                                                 "stalec"));
  const CheckpointSurvey survey = SurveyCheckpoint({.path = folder.path()});
  EXPECT_TRUE(survey.problems.empty());
  EXPECT_THAT(survey.ignored, ElementsAre("4.safetensors"));
  ASSERT_EQ(survey.warnings.size(), 2U);  // the other is about the size
  EXPECT_THAT(survey.warnings.back(), HasSubstr("2 copies in other files passed over, 'a' of '2.safetensors' for one"));
  const Checkpoint checkpoint = Checkpoint::Open(folder.path());
  EXPECT_THAT(Names(checkpoint), ElementsAre("a", "c", "b"));
  const TempFolder alone;  // each tensor is the one that its file holds
  for (const char* name : {"a", "b"}) {
    alone.Write(std::string(name) + of, OneTensorFile(name));
    const Checkpoint expected = Checkpoint::Open(alone / (std::string(name) + of));
    EXPECT_EQ(checkpoint.specs().at(static_cast<std::size_t>(checkpoint.Find(name))), expected.specs()[0]);
    EXPECT_EQ(BytesOf(checkpoint.Tensor(name)), BytesOf(expected.Tensor(name)));
  }
}

TEST(Checkpoint, ACopyIsOnlyWhatTheIndexHasElsewhere) {
  const TempFolder folder;
  folder.Write("1.safetensors", OneTensorFile("a"));
  folder.Write("2.safetensors", OneTensorFile("a"));
  folder.Write(kWeightIndexName, Index(R"({"b":"1.safetensors","c":"2.safetensors"})"));
  EXPECT_THAT(OpenError(ErrorCode::kCorrupt, folder.path()), HasSubstr("tensor 'a': expected once"));
  folder.Write("3.safetensors", OneTensorFile("b"));  // where the index has 'a', which is in the other two alone
  folder.Write(kWeightIndexName, Index(R"({"a":"3.safetensors","b":"3.safetensors","c":"2.safetensors",
                                           "d":"1.safetensors"})"));
  EXPECT_THAT(OpenError(ErrorCode::kCorrupt, folder.path()),
              HasSubstr("tensor 'a': expected in '3.safetensors', got it in '1.safetensors'"));
}

TEST(Checkpoint, CopiesOfASecondarySourceAreItsOwnIndexsMatter) {
  const TempFolder folder;
  folder.Write("model.safetensors", OneTensorFile("a"));
  std::filesystem::create_directory(folder / "more");
  folder.Write("more/1.safetensors", OneTensorFile("a"));
  folder.Write("more/2.safetensors", SafetensorsBytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
                                                          "b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                                      "xy"));
  folder.Write("more/model.safetensors.index.json", R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
  const CheckpointSource source{
      .path = folder.path(), .load_format = "auto", .secondary = {{.prefix = "p.", .path = folder / "more"}}};
  EXPECT_THAT(Names(Checkpoint::Open(source)), ElementsAre("a", "p.a", "p.b"));
  const CheckpointSurvey survey = SurveyCheckpoint(source);
  ASSERT_EQ(survey.warnings.size(), 1U);
  EXPECT_THAT(survey.warnings[0], HasSubstr("1 copy in other files passed over, 'p.a' of '2.safetensors'"));
}

TEST(Checkpoint, FilesThatAreReferencedButMissingAreNamedTogether) {
  const TempFolder folder;
  folder.Write("model-1.safetensors", OneTensorFile("a"));
  folder.Write(kWeightIndexName,
               Index(R"({"a":"model-1.safetensors","b":"model-10.safetensors","c":"model-2.safetensors"})"));
  EXPECT_THAT(OpenError(ErrorCode::kNotFound, folder.path()),
              HasSubstr("weight files referenced in index but missing: 'model-2.safetensors', 'model-10.safetensors'"));
}

TEST(Checkpoint, IndexAndHeadersAreComparedBothWays) {
  const TempFolder folder;
  folder.Write("1.safetensors", OneTensorFile("a"));
  folder.Write("2.safetensors", OneTensorFile("b"));
  folder.Write(kWeightIndexName, Index(R"({"a":"2.safetensors","c":"1.safetensors"})"));
  const std::string message = OpenError(ErrorCode::kCorrupt, folder.path());
  EXPECT_THAT(message, HasSubstr("tensor 'a': expected in '2.safetensors', got it in '1.safetensors'"));
  EXPECT_THAT(message, HasSubstr("tensor 'c': expected in '1.safetensors', got nothing of that name"));
  EXPECT_THAT(message, HasSubstr("tensor 'b': expected in the weight_map of model.safetensors.index.json"));
}

TEST(Checkpoint, ABrokenFileIsNamedWithoutBlamingItsTensors) {
  const TempFolder folder;
  folder.Write("1.safetensors", OneTensorFile("a").substr(0, 20));
  folder.Write("2.safetensors", OneTensorFile("b"));
  folder.Write(kWeightIndexName, Index(R"({"a":"1.safetensors","b":"2.safetensors"})"));
  const CheckpointSurvey survey = SurveyCheckpoint({.path = folder.path()});
  ASSERT_EQ(survey.problems.size(), 1U);
  EXPECT_THAT(survey.problems[0].message, HasSubstr("1.safetensors': header length at byte 0"));
  EXPECT_EQ(survey.tensors.size(), 1U);
}

TEST(Checkpoint, ManyProblemsAreCountedNotListed) {
  const TempFolder folder;
  for (int i = 10; i < 35; ++i) folder.Write(std::to_string(i) + ".safetensors", "x");
  EXPECT_THAT(OpenError(ErrorCode::kCorrupt, folder.path()), HasSubstr("; and 15 more"));
}

TEST(Checkpoint, AnEmptyFolderSaysWhatWasLookedFor) {
  const TempFolder folder;
  EXPECT_THAT(OpenError(ErrorCode::kNotFound, folder.path()), HasSubstr("no weights: looked for *.safetensors"));
  folder.Write("pytorch_model.bin", "x");
  try {
    Checkpoint::Open({.path = folder.path(), .load_format = "safetensors"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("looked for *.safetensors, with or without model.safetensors.index.json; "
                                        "'pytorch_model.bin' is of another format"));
  }
  EXPECT_THAT(OpenError(ErrorCode::kNotFound, folder / "nowhere"), HasSubstr("nowhere': no such checkpoint"));
}

TEST(Checkpoint, WhatIsNotAFileIsRefused) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "x.safetensors");
  EXPECT_THAT(OpenError(ErrorCode::kInvalidArgument, folder.path()), HasSubstr("expected a regular file"));
  EXPECT_THAT(OpenError(ErrorCode::kInvalidArgument, "/dev/null"), HasSubstr("expected a regular file"));
}

TEST(Checkpoint, AnIndexIsHeldToItsForm) {
  const TempFolder folder;
  folder.Write("m.safetensors", OneTensorFile("a"));
  const auto message = [&](const std::string& index) {
    folder.Write(kWeightIndexName, index);
    return OpenError(ErrorCode::kCorrupt, folder.path());
  };
  EXPECT_THAT(message(""), HasSubstr("expected to begin with '{'"));
  EXPECT_THAT(message("{"), HasSubstr("not JSON"));
  EXPECT_THAT(message("{}"), HasSubstr("expected a weight_map, got none"));
  EXPECT_THAT(message(Index("{}")), HasSubstr("weight_map: expected tensors, got none"));
  EXPECT_THAT(message(R"({"weight_map":[]})"), HasSubstr("weight_map: expected an object"));
  EXPECT_THAT(message(Index(R"({"a":1})")),
              HasSubstr("weight_map: 'a': expected the name of a file in the same folder"));
  EXPECT_THAT(message(Index(R"({"a":["m.safetensors"]})")), HasSubstr("expected the name of a file"));
  EXPECT_THAT(message(Index(R"({"a":"../m.safetensors"})")), HasSubstr("got '../m.safetensors'"));
  EXPECT_THAT(message(Index(R"({"a":"/etc/passwd"})")), HasSubstr("expected the name of a file"));
  EXPECT_THAT(message(Index(R"({"a":"m.safetensors","a":"m.safetensors"})")),
              HasSubstr("'a' of 'weight_map' is there twice"));
  EXPECT_EQ(message(Index(R"({"a":"m.safetensors"})")), "no error");
}

TEST(Checkpoint, IteratesLazilyInCheckpointOrderAndOutlivesItsMaker) {
  const TempFolder folder;
  folder.Write("m.safetensors", SafetensorsBytes(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},)"
                                                 R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                                                 "AB"));
  std::optional<Checkpoint> checkpoint = Checkpoint::Open(folder.path());
  const auto all = checkpoint->Weights();
  const auto some = checkpoint->Weights({1});
  const NamedTensor kept = checkpoint->Tensor("b");
  checkpoint.reset();
  std::filesystem::remove(folder / "m.safetensors");
  EXPECT_EQ(all->Next()->name, "a");
  EXPECT_EQ(BytesOf(*all->Next()), "B");
  EXPECT_FALSE(all->Next().has_value());
  EXPECT_FALSE(all->Next().has_value());
  EXPECT_EQ(some->Next()->name, "b");
  EXPECT_EQ(BytesOf(kept), "B");
}

TEST(Checkpoint, TensorsAreAlignedWhateverTheFileDoes) {
  const TempFolder folder;
  for (int padding = 0; padding < 8; ++padding) {
    folder.Write("m.safetensors", SafetensorsBytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                                   R"("b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})" +
                                                       std::string(static_cast<std::size_t>(padding), ' '),
                                                   "Abcde"));
    const NamedTensor named = Checkpoint::Open(folder.path()).Tensor("b");
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(named.tensor.data) % 4, 0U);
    EXPECT_EQ(BytesOf(named), "bcde");
  }
}

}  // namespace
}  // namespace layercast
