// The forms of a store's records.
#include "src/store/version_record.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "layercast/error.h"

namespace layercast {
namespace {

// Of every byte changed, and of every length that is too short.
template <class Record>
void ExpectNothingElseIsRead(const std::vector<std::byte>& bytes) {
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::vector<std::byte> wrong = bytes;
    wrong[at] ^= std::byte{1};
    EXPECT_THROW(Record::Decode(wrong), Error) << at;
    EXPECT_THROW(Record::Decode(std::span(bytes).first(at)), Error) << at;
  }
}

TEST(VersionRecordTest, IsReadAsItWasWrittenOrNotAtAll) {
  const VersionRecord record{
      .manifest = Manifest("run-17", 40, {{.spec = {"a", DType::kU8, {5}}, .digest = {1, 2}, .amax = 3}}),
      .run = "job",
      .config = "{}",
      .published_ms = 7};
  const std::vector<std::byte> bytes = record.Encode();
  const VersionRecord read = VersionRecord::Decode(bytes);
  EXPECT_EQ(read.manifest.Encode(), record.manifest.Encode());
  EXPECT_EQ(read.manifest.version(), record.manifest.version());
  EXPECT_EQ(std::tie(read.run, read.config, read.published_ms),
            std::tie(record.run, record.config, record.published_ms));
  ExpectNothingElseIsRead<VersionRecord>(bytes);
  EXPECT_THROW(RunRecord::Decode(bytes), Error);
}

TEST(RunRecordTest, IsReadAsItWasWrittenOrNotAtAll) {
  const RunRecord record{"job", 7};
  EXPECT_EQ(RunRecord::Decode(record.Encode()), record);
  ExpectNothingElseIsRead<RunRecord>(record.Encode());
}

TEST(ObjectBytes, AreThoseOfTheTensorAndOfTheDigestsOfItsLeavesIfItHasSeveral) {
  EXPECT_EQ(ObjectBytes(0), 0);
  EXPECT_EQ(ObjectBytes(8192), 8192);
  EXPECT_EQ(ObjectBytes(8193), 8193 + 2 * 16);
}

}  // namespace
}  // namespace layercast
