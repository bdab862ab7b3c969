#include "engine_side/reload/layout/export_label.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine_side/reload/sources/kernel_files.h"
#include "src/checkpoint/safetensors/safetensors_writer.h"
#include "tests/support/reload/receiver_rig.h"

namespace layercast {
namespace {

using ::testing::AllOf;
using testing::EagerSource;
using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::ReceiverRig;
using Metadata = ExportLabel::Metadata;

const Version kVersion{"run-17", 42, {0x123, 0x456}};
const ParallelConfig kRank{.tp_rank = 1, .tp_size = 2};
constexpr char kFile[] = "model-rank-1-part-0.safetensors";

ParallelConfig WithExperts(ExpertPlacement placement) {
  ParallelConfig parallel = kRank;
  parallel.SpreadExperts(placement);
  return parallel;
}

Metadata Labelled(const Version& version = kVersion, const ParallelConfig& parallel = kRank) {
  return ExportLabel::ToWrite(version, parallel, "none", {});
}

Metadata With(const std::string& key, const std::string& value) {
  Metadata metadata = Labelled();
  metadata[key] = value;
  return metadata;
}

class ExportLabelTest : public ::testing::Test {
 protected:
  // Files of one tensor each, which their labels alone tell apart.
  void Write(const std::string& name, const Metadata& metadata) {
    WriteSafetensors(folder_ / name, std::vector{weights_.at(0)}, metadata);
  }
  std::string ErrorOfLabel(const Metadata& metadata) {
    Write(kFile, metadata);
    return ErrorOf([&] { ExportLabel{folder_ / kFile}; });
  }
  std::string ErrorOfFiles(const ParallelConfig& parallel = kRank, std::string_view recipe = "none") {
    return ErrorOf([&] { KernelFiles(folder_.path(), parallel, recipe); });
  }
  std::string ErrorOfFile(const Metadata& metadata, const ParallelConfig& parallel = kRank,
                          std::string_view recipe = "none") {
    Write(kFile, metadata);
    return ErrorOfFiles(parallel, recipe);
  }

  const TempFolder folder_;
  testing::Weights weights_ = testing::RigWeights({});
};

TEST_F(ExportLabelTest, NamesTheVersionThatWasExported) {
  EXPECT_EQ(ErrorOfFile(Labelled()), "no error");
  EXPECT_EQ(KernelFiles(folder_.path(), kRank, "none").label().version(), kVersion);
  EXPECT_EQ(ErrorOfFile({}), "no error");  // other tools'
  EXPECT_EQ(KernelFiles(folder_.path(), kRank, "none").label().version(), std::nullopt);
}

TEST_F(ExportLabelTest, RefusesAFileOfAnotherRankEngineOrRecipe) {
  const std::pair<Metadata, std::string> refused[] = {
      {With("rank", "0"), "rank: expected 1, got 0"},
      {With("tp_size", "4"), "tp_size: expected 2, got 4"},
      {With("pp_size", "2"), "pp_size: expected 1, got 2"},
      {With("ep_size", "2"), "ep_size: expected 1, got 2"},
      {With("quantization", "fp8_per_channel"), "quantization: expected none, got fp8_per_channel"}};
  for (const auto& [metadata, said] : refused) {
    EXPECT_THAT(ErrorOfFile(metadata), AllOf(HasSubstr(kFile), HasSubstr(said)));
  }
  // Each layer as config.json says: the tensors themselves tell whether they are the same.
  EXPECT_EQ(ErrorOfFile(With("quantization", "fp8_per_channel"), kRank, "checkpoint"), "no error");
  EXPECT_EQ(ErrorOfFile(With("quantization", "checkpoint")), "no error");
}

// Of two ranks, both placements have tensors of the same shapes.
TEST_F(ExportLabelTest, RefusesExpertsThatAreOtherRanks) {
  const ParallelConfig contiguous = WithExperts(ExpertPlacement::kContiguous);
  const ParallelConfig round_robin = WithExperts(ExpertPlacement::kRoundRobin);
  EXPECT_EQ(ErrorOfFile({}, contiguous), "no error");  // as they were written before there was another placement
  EXPECT_THAT(ErrorOfFile({}, round_robin), HasSubstr("expert_placement: expected round_robin, got contiguous"));
  const Metadata spread = Labelled(kVersion, round_robin);
  EXPECT_EQ(ErrorOfFile(spread, round_robin), "no error");
  EXPECT_THAT(ErrorOfFile(spread, contiguous), HasSubstr("expert_placement: expected contiguous, got round_robin"));
  // Every expert is on every rank.
  EXPECT_EQ(ErrorOfFile(With("expert_placement", "round_robin")), "no error");
}

TEST_F(ExportLabelTest, RefusesAFileOfAnotherVersionThanTheFirstRanks) {
  const ParallelConfig first{.tp_rank = 0, .tp_size = 2};
  Write("model-rank-0-part-0.safetensors", Labelled(kVersion, first));
  EXPECT_EQ(ErrorOfFile(Labelled()), "no error");
  EXPECT_THAT(ErrorOfFile(Labelled({"run-17", 43, kVersion.digest})),
              AllOf(HasSubstr(kFile), HasSubstr("version: expected run-17@42:"), HasSubstr("got run-17@43:"),
                    HasSubstr("as in model-rank-0-part-0.safetensors")));
  EXPECT_THAT(ErrorOfFile(Labelled({"run-17", 42, {0x124, 0}})), HasSubstr("got run-17@42:0000000000000124"));
  EXPECT_THAT(ErrorOfFile({}), HasSubstr(", got none"));
  Write("model-rank-0-part-0.safetensors", {});
  EXPECT_THAT(ErrorOfFile(Labelled()), HasSubstr("version: expected none, as in"));
}

TEST_F(ExportLabelTest, RefusesAPartOfAnotherExport) {
  Write(kFile, Labelled());
  Write("model-rank-1-part-1.safetensors", Labelled({"run-17", 41, kVersion.digest}));
  EXPECT_THAT(ErrorOfFiles(), AllOf(HasSubstr("model-rank-1-part-1.safetensors: version: expected run-17@42:"),
                                    HasSubstr(", got run-17@41:")));
}

TEST_F(ExportLabelTest, RefusesWhatIsNoVersion) {
  EXPECT_THAT(ErrorOfLabel(With("step", "-1")), HasSubstr("step: expected a number, got '-1'"));
  EXPECT_THAT(ErrorOfLabel(With("step", "")), HasSubstr("step: expected a number"));
  EXPECT_THAT(ErrorOfLabel(With("digest", "12")), HasSubstr("digest: expected 32 hexadecimal digits, got '12'"));
  EXPECT_THAT(ErrorOfLabel(With("served_digest", "?")), HasSubstr("served_digest: expected 32 hexadecimal digits"));
  EXPECT_THAT(ErrorOfLabel(With("lineage", std::string(2000, 'a'))), HasSubstr("lineage"));
  EXPECT_THAT(ErrorOfLabel({{"lineage", "run"}, {"step", "3"}}), HasSubstr("lineage, step and digest"));
}

TEST_F(ExportLabelTest, TakesTheBytesThatWereExportedUnderTheirOwnVersionAndNoOthers) {
  ReceiverRig rig;
  rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
  const CapturedBuffers& captured = rig.receiver->captured();
  const auto served = rig.engine.Served();
  const auto write = [&](const Digest& digest) {
    std::vector<NamedTensor> kernel;
    for (const CapturedBuffer& buffer : captured.buffers()) {
      kernel.push_back({buffer.name, {buffer.dtype, buffer.shape, served.at(buffer.name).data(), {}}, nullptr});
    }
    WriteSafetensors(folder_ / "model-rank-0-part-0.safetensors", kernel,
                     ExportLabel::ToWrite(kVersion, rig.options.parallel, rig.options.recipe, digest));
  };
  write(captured.ServedDigest());
  rig.receiver->ReloadWeights(EagerSource(rig.Version(2)));
  EXPECT_EQ(rig.receiver->ReloadWeights(FromPath(folder_.path())).version, kVersion);
  EXPECT_EQ(rig.receiver->version(), kVersion);
  EXPECT_THAT(testing::Differences(rig.engine.Served(), served), ::testing::IsEmpty());

  write({0x123, 0x456});
  EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(FromPath(folder_.path())); }),
              AllOf(HasSubstr("model-rank-0-part-0.safetensors: digest of the rank's tensors: expected "
                              "00000000000001230000000000000456, got "),
                    HasSubstr(captured.ServedDigest().ToHex())));
  EXPECT_EQ(rig.receiver->version(), kVersion);
}

}  // namespace
}  // namespace layercast
