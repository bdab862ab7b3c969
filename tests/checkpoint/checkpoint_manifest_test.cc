#include "src/checkpoint/checkpoint_manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layercast/error.h"
#include "src/base/digest.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/temp_folder.h"

namespace layercast {
namespace {

TEST(CheckpointManifest, SaysWhatTheFilesHold) {
  const TempFolder folder;
  const std::string data("\0\0\x80\xbf\0\0\x20\x41xyz", 11);  // -1, 10
  folder.Write("m.safetensors", SafetensorsBytes(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                                 R"("ids":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})",
                                                 data));
  WorkerPool pool(1);
  const Manifest manifest = MakeManifest(Checkpoint::Open(folder.path()), "run", 5, pool);
  ASSERT_EQ(manifest.size(), 2U);
  EXPECT_EQ(manifest.entry(0).spec, (TensorSpec{"w", DType::kF32, {2}}));
  EXPECT_EQ(manifest.entry(0).amax, 10.0F);
  EXPECT_EQ(manifest.entry(1).amax, 0.0F);
  EXPECT_EQ(manifest.entry(1).digest, DigestOf(std::as_bytes(std::span(data)).subspan(8)));
  EXPECT_EQ(manifest.version().lineage, "run");
  EXPECT_EQ(manifest.version().step, 5U);
}

TEST(CheckpointManifest, ANaNIsRefusedByNameAndIndex) {
  const TempFolder folder;
  folder.Write("m.safetensors", SafetensorsBytes(R"({"w":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]}})",
                                                 std::string("\0\0\xc0\x7f", 4)));
  WorkerPool pool(1);
  try {
    MakeManifest(Checkpoint::Open(folder.path()), "run", 5, pool);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
    EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr("'w'"), ::testing::HasSubstr("[0, 1]")));
  }
}

TEST(CheckpointManifest, TheLineageIsTheFoldersName) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "run-a");
  folder.Write("run-a/m.safetensors", OneTensorFile("w"));
  EXPECT_EQ(DefaultLineage(folder / "run-a"), "run-a");
  EXPECT_EQ(DefaultLineage(folder / "run-a/"), "run-a");
  EXPECT_EQ(DefaultLineage(folder / "run-a/."), "run-a");
  EXPECT_EQ(DefaultLineage(folder / "run-a/m.safetensors"), "run-a");
}

}  // namespace
}  // namespace layercast
