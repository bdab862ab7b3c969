#include "src/adapter/adapter_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "src/checkpoint/safetensors/safetensors_writer.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_folder.h"
#include "tests/support/torch_file.h"

namespace layercast {
namespace {

using ::testing::HasSubstr;

constexpr char kConfig[] = R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4})";
const std::string kA = "base_model.model.m.q_proj.lora_A.weight";
const std::string kB = "base_model.model.m.q_proj.lora_B.weight";

void WriteTensors(const std::filesystem::path& path, const std::vector<TensorSpec>& specs) {
  SafetensorsWriter writer(path, specs);
  for (const TensorSpec& spec : specs) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(spec.num_bytes()));
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
    writer.Write(spec.name, bytes);
  }
  writer.Commit();
}

std::string TorchFile() {
  namespace torch = torch_file;
  const std::string bytes(64, '\1');
  const std::string pickle =
      torch::Pickled(torch::Dict({{kA, torch::Tensor(torch::Storage("FloatStorage", "0", 16), 0, {2, 4}, {4, 1})},
                                  {kB, torch::Tensor(torch::Storage("FloatStorage", "0", 16), 8, {4, 2}, {1, 4})}}));
  return torch::Zip({{"archive/data.pkl", pickle}, {"archive/data/0", bytes}, {"archive/version", "3\n"}});
}

class AdapterFolderTest : public ::testing::Test {
 protected:
  void WriteGood() {
    folder_.Write("adapter_config.json", kConfig);
    WriteTensors(folder_ / "adapter_model.safetensors", {{kA, DType::kF32, {2, 4}}, {kB, DType::kBF16, {4, 2}}});
  }
  std::string WhyRefused(ErrorCode code) {
    return testing::ErrorOf([&] { (void)AdapterFolder(folder_.path()); }, code);
  }

  TempFolder folder_;
};

TEST_F(AdapterFolderTest, ReadsWhatPeftSaves) {
  WriteGood();
  folder_.Write("README.md", "");
  folder_.Write("added_tokens.json", "{}");
  folder_.Write("training_args.bin", "a pickle that nobody asks for");
  ASSERT_TRUE(IsAdapterFolder(folder_.path()));
  const AdapterFolder adapter(folder_.path());
  EXPECT_EQ(adapter.path(), folder_.path());
  EXPECT_EQ(adapter.file(), "adapter_model.safetensors");
  EXPECT_EQ(adapter.config().RankOf("m.q_proj"), 2);
  EXPECT_EQ(adapter.config_text(), kConfig);
  ASSERT_EQ(adapter.specs().size(), 2U);
  EXPECT_EQ(adapter.specs()[0].name, kA);
  NamedTensor read;
  {
    const AdapterFolder other(folder_.path());
    read = other.Read(1);
  }
  EXPECT_EQ(read.name, kB);
  EXPECT_EQ(read.tensor.shape, (Shape{4, 2}));
  EXPECT_EQ(read.tensor.data[15], std::byte{15}) << "the tensor outlives its folder";
}

TEST_F(AdapterFolderTest, ReadsFilesOfTorchToo) {
  for (const char* name : {"adapter_model.bin", "adapter_model.pt"}) {
    const TempFolder folder;
    folder.Write("adapter_config.json", kConfig);
    folder.Write(name, TorchFile());
    const AdapterFolder adapter(folder.path());
    EXPECT_EQ(adapter.file(), name);
    ASSERT_EQ(adapter.specs().size(), 2U);
    EXPECT_EQ(adapter.specs()[1].shape, (Shape{4, 2}));
    EXPECT_EQ(adapter.Read(1).name, kB);
  }
}

TEST_F(AdapterFolderTest, FollowsLinksAsHubsLayThem) {
  const TempFolder blobs;
  WriteTensors(blobs / "1234", {{kA, DType::kF32, {2, 4}}, {kB, DType::kF32, {4, 2}}});
  blobs.Write("5678", kConfig);
  std::filesystem::create_symlink(blobs / "1234", folder_ / "adapter_model.safetensors");
  std::filesystem::create_symlink(blobs / "5678", folder_ / "adapter_config.json");
  EXPECT_EQ(AdapterFolder(folder_.path()).specs().size(), 2U);
  std::filesystem::remove(blobs / "1234");
  EXPECT_THAT(WhyRefused(ErrorCode::kNotFound), HasSubstr("adapter_model.safetensors"));
  std::filesystem::remove(blobs / "5678");
  EXPECT_TRUE(IsAdapterFolder(folder_.path())) << "it says that it is one";
  EXPECT_THAT(WhyRefused(ErrorCode::kNotFound), HasSubstr("adapter_config.json"));
}

TEST_F(AdapterFolderTest, NamesWhatIsMissing) {
  EXPECT_FALSE(IsAdapterFolder(folder_.path()));
  EXPECT_THAT(WhyRefused(ErrorCode::kNotFound), HasSubstr("expected an adapter_config.json, got none"));
  folder_.Write("adapter_config.json", kConfig);
  EXPECT_THAT(WhyRefused(ErrorCode::kNotFound), HasSubstr("expected adapter_model.safetensors, adapter_model.bin or"));
  const std::filesystem::path nowhere = folder_ / "nowhere";
  EXPECT_FALSE(IsAdapterFolder(nowhere));
  EXPECT_THAT(testing::ErrorOf([&] { (void)AdapterFolder(nowhere); }, ErrorCode::kNotFound), HasSubstr("nowhere"));
}

TEST_F(AdapterFolderTest, RefusesSeveralFilesAndIndexes) {
  WriteGood();
  for (const char* name : {"adapter_model.bin", "adapter_model.pt", "adapter_model.safetensors.index.json",
                           "adapter_model-00001-of-00002.safetensors"}) {
    folder_.Write(name, "");
    const std::string why = WhyRefused(ErrorCode::kInvalidArgument);
    EXPECT_THAT(why, HasSubstr("'" + std::string(name) + "'"));
    EXPECT_THAT(why, HasSubstr("'adapter_model.safetensors'"));
    std::filesystem::remove(folder_ / name);
  }
  std::filesystem::rename(folder_ / "adapter_model.safetensors", folder_ / "adapter_model-00001-of-00001.safetensors");
  EXPECT_THAT(WhyRefused(ErrorCode::kInvalidArgument), HasSubstr("got 'adapter_model-00001-of-00001.safetensors'"));
}

TEST_F(AdapterFolderTest, RefusesNewEmbeddingsByName) {
  WriteGood();
  folder_.Write("new_embeddings.safetensors", "");
  EXPECT_THAT(WhyRefused(ErrorCode::kUnsupported), HasSubstr("'new_embeddings.safetensors': adapters that add tokens"));
}

TEST_F(AdapterFolderTest, NamesEachModuleThatWasSavedWhole) {
  folder_.Write("adapter_config.json", R"({"peft_type": "LORA", "r": 2, "modules_to_save": ["norm"]})");
  const std::vector<std::string> norms = {"base_model.model.model.layers.0.input_layernorm.weight",
                                          "base_model.model.model.layers.1.input_layernorm.weight",
                                          "base_model.model.model.layers.0.post_attention_layernorm.weight",
                                          "base_model.model.model.layers.1.post_attention_layernorm.weight",
                                          "base_model.model.model.norm.weight"};
  std::vector<TensorSpec> specs = {{kA, DType::kF32, {2, 4}}, {kB, DType::kF32, {4, 2}}};
  for (const std::string& norm : norms) specs.push_back({norm, DType::kF32, {4}});
  WriteTensors(folder_ / "adapter_model.safetensors", specs);
  const std::string why = WhyRefused(ErrorCode::kUnsupported);
  for (const std::string& norm : norms) EXPECT_THAT(why, HasSubstr("'" + norm + "'"));
  EXPECT_THAT(why, HasSubstr("modules_to_save"));
  // Where the file has none of them, the field says it.
  WriteTensors(folder_ / "adapter_model.safetensors", {{kA, DType::kF32, {2, 4}}, {kB, DType::kF32, {4, 2}}});
  EXPECT_THAT(WhyRefused(ErrorCode::kUnsupported), HasSubstr(R"(modules_to_save: expected it unset, got ["norm"])"));
}

TEST_F(AdapterFolderTest, NamesTheFolderOfABadFile) {
  WriteGood();
  folder_.Write("adapter_config.json", R"({"peft_type": "LORA", "r": 0})");
  EXPECT_THAT(WhyRefused(ErrorCode::kInvalidArgument),
              HasSubstr("'" + folder_.path().native() + "': adapter_config.json: r: expected an integer"));
  folder_.Write("adapter_config.json", kConfig);
  folder_.Write("adapter_model.safetensors", "broken");
  EXPECT_THAT(WhyRefused(ErrorCode::kCorrupt), HasSubstr("adapter_model.safetensors"));
  folder_.Write("adapter_model.safetensors", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_THAT(WhyRefused(ErrorCode::kNotFound), HasSubstr("git-lfs"));
  std::filesystem::remove(folder_ / "adapter_model.safetensors");
  folder_.Write("adapter_model.bin", TorchFile().substr(0, 100));
  EXPECT_THAT(WhyRefused(ErrorCode::kCorrupt), HasSubstr("adapter_model.bin"));
  std::filesystem::remove(folder_ / "adapter_config.json");
  std::filesystem::create_directory(folder_ / "adapter_config.json");
  EXPECT_THAT(WhyRefused(ErrorCode::kInvalidArgument), HasSubstr("adapter_config.json"));
}

}  // namespace
}  // namespace layercast
