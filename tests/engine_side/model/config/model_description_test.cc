// What of a checkpoint's folder says how its model is built: config.json, and what stands beside it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "layercast/model/config.h"
#include "tests/engine_side/model/config/minimal_config.h"
#include "tests/support/error_of.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/temp_folder.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

std::string Nested(std::size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); }

TEST(ModelDescription, SaysWhichConfigIsWrongOrNotThere) {
  const auto message = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message([] { (void)ModelDescription::FromDirectory("no/such/folder"); }),
              HasSubstr("no/such/folder/config.json: is not there"));
  EXPECT_EQ(message([] { (void)ModelConfig::Parse(ModelDescription::FromJson(Nested(100'000), "folder")); }),
            "folder/config.json: has more than 32 levels");
  EXPECT_EQ(message([] { (void)ModelConfig::Parse(ModelDescription::FromJson("{}", "folder")); }),
            "folder/config.json: vocab_size is missing");
}

TEST(ModelDescription, ReadsRegularFilesOfALikelySizeAlone) {
  for (const std::string name : {"config.json", "generation_config.json", "hf_quant_config.json"}) {
    const auto message = [&](const auto& make) {
      const TempFolder folder;
      folder.Write("config.json", testing::MinimalConfig().dump());
      std::filesystem::remove(folder / name);
      make((folder / name).c_str());
      return testing::ErrorOf([&] { (void)ModelDescription::FromDirectory(folder.path()); },
                              ErrorCode::kInvalidArgument);
    };
    EXPECT_THAT(message([](const char* path) { ASSERT_EQ(::mkfifo(path, 0600), 0); }),
                HasSubstr(name + "': expected a regular file"));
    EXPECT_THAT(message([](const char* path) { std::filesystem::create_directory(path); }),
                HasSubstr(name + "': expected a regular file"));
    EXPECT_THAT(message([](const char* path) {
                  std::ofstream(path).close();
                  std::filesystem::resize_file(path, std::uintmax_t{40} << 30);
                }),
                HasSubstr(name + ": expected at most 67108864 bytes, got 42949672960"));
  }
}

DType DTypeIn(const TempFolder& folder) {
  return ModelConfig::Parse(ModelDescription::FromDirectory(folder.path())).dtype;
}

// A weight in 16 bits between fp32 scales and codes of 8 bits that are more.
std::string OneWeightInHalf() {
  return SafetensorsBytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                          R"("b":{"dtype":"F16","shape":[2],"data_offsets":[4,8]},)"
                          R"("c":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[8,12]}})",
                          std::string(12, '\0'));
}

TEST(ModelDescription, TakesTheDTypeOfTheCheckpointWhereTheConfigSaysNone) {
  const TempFolder folder;
  folder.Write("config.json", testing::MinimalConfig().dump());
  EXPECT_EQ(DTypeIn(folder), DType::kF32);
  folder.Write("model.safetensors", OneWeightInHalf());
  EXPECT_EQ(DTypeIn(folder), DType::kF16);
  Json text = testing::MinimalConfig();
  text["dtype"] = nullptr;
  folder.Write("config.json", Json({{"architectures", {"Mine"}}, {"text_config", text}}).dump());
  EXPECT_EQ(DTypeIn(folder), DType::kF16);
  folder.Write("config.json", Json({{"dtype", "bfloat16"}, {"text_config", text}}).dump());
  EXPECT_EQ(DTypeIn(folder), DType::kBF16);
  folder.Write("config.json", testing::ConfigWith({{"torch_dtype", "bfloat16"}}).dump());
  EXPECT_EQ(DTypeIn(folder), DType::kBF16);
}

TEST(ModelDescription, LeavesWhatIsWrongWithFilesToWhoeverReadsThem) {
  const TempFolder folder;
  folder.Write("config.json", testing::MinimalConfig().dump());
  folder.Write("model.safetensors", "cut short");
  EXPECT_EQ(DTypeIn(folder), DType::kF32);
  folder.Write("config.json", "{");
  EXPECT_NO_THROW((void)ModelDescription::FromDirectory(folder.path()));
}

std::vector<std::int64_t> EndTokensOf(const Json& config, const std::string& generation) {
  const TempFolder folder;
  folder.Write("config.json", config.dump());
  folder.Write("generation_config.json", generation);
  return ModelConfig::Parse(ModelDescription::FromDirectory(folder.path())).eos_token_ids;
}

TEST(ModelDescription, JoinsTheEndTokensOfBothFiles) {
  const Json none = testing::MinimalConfig();
  const Json one = testing::ConfigWith({{"eos_token_id", 2}});
  const Json two = testing::ConfigWith({{"eos_token_id", {2, 3}}});
  EXPECT_THAT(EndTokensOf(one, "{}"), ElementsAre(2));
  EXPECT_THAT(EndTokensOf(one, R"({"eos_token_id": null, "top_p": 0.9})"), ElementsAre(2));
  EXPECT_THAT(EndTokensOf(none, R"({"eos_token_id": 7})"), ElementsAre(7));
  EXPECT_THAT(EndTokensOf(one, R"({"eos_token_id": [7, 2]})"), ElementsAre(2, 7));
  EXPECT_THAT(EndTokensOf(two, R"({"eos_token_id": 4})"), ElementsAre(2, 3, 4));
}

// Wherever a configuration that nests the language model's fields has its own.
TEST(ModelDescription, JoinsTheEndTokensOfAVisionLanguageModel) {
  for (const auto& [outer, inner] : {std::pair(Json(5), Json()), std::pair(Json(6), Json(5))}) {
    const Json config = {{"eos_token_id", outer}, {"text_config", testing::ConfigWith({{"eos_token_id", inner}})}};
    EXPECT_THAT(EndTokensOf(config, R"({"eos_token_id": [5, 7]})"), ElementsAre(5, 7));
  }
}

TEST(ModelDescription, NamesFieldAndValueOfAMalformedGenerationConfig) {
  const auto error = [](const std::string& text) {
    return testing::ErrorOf([&] { (void)EndTokensOf(testing::MinimalConfig(), text); }, ErrorCode::kInvalidArgument);
  };
  EXPECT_THAT(error(R"({"eos_token_id": "</s>"})"),
              ::testing::EndsWith(
                  "/generation_config.json: eos_token_id: expected an integer or a list of integers, got \"</s>\""));
  EXPECT_THAT(error(R"({"eos_token_id": [1, 2.5]})"), ::testing::EndsWith("list of integers, got [1,2.5]"));
  EXPECT_THAT(error("[]"), ::testing::EndsWith("/generation_config.json: expected an object, got array"));
  EXPECT_THAT(error("{"), HasSubstr("/generation_config.json: is not JSON: "));
}

TEST(ModelDescription, ReadsWhatPythonWritesForFloatsInEveryFile) {
  const TempFolder folder;
  Json config = testing::MinimalConfig();
  config["foo"] = "a string with NaN";
  std::string text = config.dump();
  text.insert(1, R"("loss": NaN, "deep": {"least": -Infinity}, )");
  folder.Write("config.json", text);
  folder.Write("generation_config.json", R"({"temperature": NaN, "eos_token_id": [3], "top": Infinity})");
  folder.Write("hf_quant_config.json", R"({"producer": {"x": -Infinity}, "quantization": {"quant_algo": null}})");
  const ModelDescription description = ModelDescription::FromDirectory(folder.path());
  const ModelConfig read = ModelConfig::Parse(description);
  EXPECT_THAT(read.eos_token_ids, ElementsAre(3));
  const Json kept = Json::parse(read.json);
  EXPECT_EQ(kept["loss"], Json({{"__float__", "NaN"}}));
  EXPECT_EQ(kept["deep"]["least"], Json({{"__float__", "-Infinity"}}));
  EXPECT_EQ(kept["foo"], "a string with NaN");
  EXPECT_EQ(kept["quantization_config"]["producer"]["x"], Json({{"__float__", "-Infinity"}}));
  folder.Write("generation_config.json", R"({"eos_token_id": NaN})");
  EXPECT_THAT(testing::ErrorOf([&] { (void)ModelDescription::FromDirectory(folder.path()); }),
              HasSubstr("generation_config.json: eos_token_id: expected an integer or a list of integers, got NaN"));
}

TEST(ModelDescription, AModelOptFileOfManyLevelsIsRefused) {
  const TempFolder folder;
  folder.Write("config.json", testing::MinimalConfig().dump());
  folder.Write("hf_quant_config.json", Nested(100'000));
  EXPECT_THAT(
      testing::ErrorOf([&] { (void)ModelDescription::FromDirectory(folder.path()); }, ErrorCode::kInvalidArgument),
      HasSubstr("hf_quant_config.json: expected a JSON object"));
}

}  // namespace
}  // namespace layercast
