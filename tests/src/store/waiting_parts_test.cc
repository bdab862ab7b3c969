// Versions that several ranks write, each its part: there once all parts are, and not before.
#include "src/store/waiting_parts.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "layercast/error.h"
#include "src/base/digest/digest.h"
#include "src/store/store_writer.h"
#include "src/store/stored_object.h"
#include "src/tensor/parts/merged_version.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_folder.h"

namespace layercast {
namespace {

using ::layercast::testing::ErrorOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kRows = 6;
constexpr std::int64_t kColumns = 4000;
constexpr std::int64_t kRowsEach = kRows / 2;

// Half of a tensor's rows, of one of two ranks. All bytes of a rank and step are alike.
std::vector<std::byte> RowsOf(int rank, std::uint64_t step) {
  return std::vector<std::byte>(kRowsEach * kColumns, static_cast<std::byte>(10 * step + static_cast<unsigned>(rank)));
}

// Each rank has half of "rows"; rank 1 has "own" whole.
struct Part {
  VersionRecord record;
  std::vector<std::vector<std::byte>> bytes;
};

Part PartOf(int rank, std::uint64_t step, const std::string& run = "job", std::int64_t first_row = -1) {
  Part part;
  part.bytes.push_back(RowsOf(rank, step));
  const std::int64_t from = first_row < 0 ? kRowsEach * rank : first_row;
  std::vector<ManifestEntry> entries{{.spec = {"rows", DType::kU8, {kRowsEach, kColumns}},
                                      .digest = DigestOf(part.bytes[0]),
                                      .amax = 0,
                                      .part = TensorPart{.whole = {kRows, kColumns}, .offsets = {from, 0}}}};
  if (rank == 1) {
    part.bytes.push_back({100, std::byte{7}});
    entries.push_back({.spec = {"own", DType::kU8, {100}}, .digest = DigestOf(part.bytes[1]), .amax = 0});
  }
  part.record = {.manifest = Manifest("run-17", step, std::move(entries), {rank, 2}),
                 .run = run,
                 .config = "{}",
                 .published_ms = step + static_cast<unsigned>(rank)};
  return part;
}

class WaitingPartsTest : public ::testing::Test {
 protected:
  static void Write(const std::filesystem::path& root, FailPoints& failpoints, const Part& part) {
    StoreWriter writer(StoreFolder::Make(root, failpoints), {}, failpoints, std::chrono::seconds(60));
    writer.Write(part.record, [&](std::uint32_t tensor) { return std::span<const std::byte>(part.bytes[tensor]); });
  }
  void Write(const Part& part) { Write(root_, failpoints_, part); }

  VersionStore Opened() const { return VersionStore(StoreFolder::Open(root_), std::chrono::milliseconds(0)); }
  std::vector<std::uint64_t> Steps() const {
    std::vector<std::uint64_t> steps;
    for (const StoredVersion& stored : Opened().List()) steps.push_back(stored.version().step);
    return steps;
  }
  std::size_t FilesIn(const std::string& folder) const {
    std::size_t files = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root_ / folder)) {
      files += entry.is_regular_file() ? 1U : 0U;
    }
    return files;
  }
  void ExpectWhole(std::uint64_t step) const {
    const StoredVersion stored = Opened().Find("run-17", step);
    ASSERT_EQ(stored.record.parts.size(), 2U);
    WorkerPool pool(1);
    for (int rank = 0; rank < 2; ++rank) {
      const Manifest& held = stored.record.parts[static_cast<std::size_t>(rank)];
      const Digest& digest = held.entry(0).digest;
      StoredObject object(StoreFolder::Open(root_).Object(digest), digest, BytesOf(held, 0));
      object.CheckAll(pool);
      EXPECT_TRUE(std::ranges::equal(object.bytes(), RowsOf(rank, step)));
    }
    for (const auto& checked : Opened().Check(pool)) EXPECT_THAT(checked.wrong, IsEmpty()) << checked.name;
  }

  TempFolder folder_;
  std::filesystem::path root_ = folder_ / "store";
  FailPoints failpoints_;
};

TEST_F(WaitingPartsTest, AreAVersionOnceAllAreThereInWhateverOrder) {
  for (const std::uint64_t step : {1, 2}) {
    const int first = step == 1 ? 0 : 1;
    Write(PartOf(first, step));
    EXPECT_EQ(Steps().size(), step - 1);
    EXPECT_EQ(FilesIn("runs"), step - 1 > 0 ? 1U : 0U) << "a run begins with a version";
    Write(PartOf(1 - first, step));
    ExpectWhole(step);
    EXPECT_EQ(FilesIn("parts"), 0U);
  }
  EXPECT_THAT(Steps(), ElementsAre(1, 2));
  const StoredVersion stored = Opened().Find("", std::nullopt);
  EXPECT_EQ(stored.record.run, "job");
  EXPECT_EQ(stored.record.config, "{}");
  EXPECT_EQ(stored.record.published_ms, 3U) << "when the last was";
  EXPECT_EQ(stored.added_bytes, 2 * ObjectBytes(kRowsEach * kColumns)) << "\"own\" is of step 1 too";
}

TEST_F(WaitingPartsTest, HaveTheNameThatEnginesGiveThemWhoTakeThemFromTheirPublishers) {
  const Part first = PartOf(0, 1);
  const Part second = PartOf(1, 1);
  Write(first);
  Write(second);
  const std::vector<Manifest> manifests{first.record.manifest, second.record.manifest};
  const std::vector<std::string> endpoints{"a", "b"};
  EXPECT_EQ(Opened().Find("run-17", 1).version(), Merge(manifests, endpoints).manifest.version());
}

TEST_F(WaitingPartsTest, OfTwoRunsAreNotMixed) {
  Write(PartOf(0, 1, "job"));
  Write(PartOf(1, 1, "another"));
  EXPECT_THAT(Steps(), IsEmpty());
  Write(PartOf(1, 1, "job"));
  EXPECT_EQ(Opened().Find("run-17", 1).record.run, "job");
  EXPECT_EQ(FilesIn("parts"), 1U);
  Write(PartOf(0, 1, "another"));
  EXPECT_EQ(Opened().Find("run-17", 1).record.run, "another") << "which has taken the step over";
}

TEST_F(WaitingPartsTest, ThatAreThereAreNotReplacedByOtherBytes) {
  Write(PartOf(0, 1));
  Write(PartOf(0, 1));  // as after a restart
  Part other = PartOf(0, 1);
  other.bytes[0][5] = std::byte{99};
  const Manifest& was = other.record.manifest;
  other.record.manifest = Manifest(
      "run-17", 1,
      {{.spec = was.entry(0).spec, .digest = DigestOf(other.bytes[0]), .amax = 0, .part = was.entry(0).part}}, {0, 2});
  EXPECT_THAT(ErrorOf([&] { Write(other); }, ErrorCode::kInvalidArgument),
              HasSubstr("part 0 of run-17@1 is there with other bytes"));
  Write(PartOf(1, 1));
  ExpectWhole(1);
}

TEST_F(WaitingPartsTest, ThatDoNotFillTheirTensorsAreNoVersion) {
  Write(PartOf(0, 1));
  EXPECT_THAT(ErrorOf([&] { Write(PartOf(1, 1, "job", /*first_row=*/2)); }, ErrorCode::kInvalidArgument),
              HasSubstr("of rank 0 has [0:3, 0:4000] and publisher of rank 1 has [2:5, 0:4000]"));
  EXPECT_THAT(Steps(), IsEmpty());
}

TEST_F(WaitingPartsTest, MayComeAllAtOnce) {
  static_cast<void>(StoreFolder::Make(root_, failpoints_));
  for (std::uint64_t step = 1; step <= 4; ++step) {
    std::jthread one([&] { Write(PartOf(0, step)); });
    std::jthread other([&] { Write(PartOf(1, step)); });
    one.join();
    other.join();
    ExpectWhole(step);
  }
  EXPECT_EQ(FilesIn("parts"), 0U);
  EXPECT_EQ(FilesIn("runs"), 1U);
}

TEST_F(WaitingPartsTest, AreAVersionOrNoneWhereverARankIsKilled) {
  int killed = 0;
  for (bool done = false; !done; ++killed) {
    std::filesystem::remove_all(root_);
    Write(PartOf(0, 1));
    const pid_t child = ::fork();
    if (child == 0) {
      FailPoints failpoints("store.step=kill@" + std::to_string(killed));
      Write(root_, failpoints, PartOf(1, 1));
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    done = WIFEXITED(status);
    if (!Steps().empty()) ExpectWhole(1);
    EXPECT_TRUE(!done || Steps().size() == 1);
    Write(PartOf(1, 1));  // the rank's restart
    ExpectWhole(1);
    EXPECT_EQ(FilesIn("parts"), 0U) << killed;
    for (const int rank : {0, 1}) Write(PartOf(rank, 2));
    ExpectWhole(2);
  }
  EXPECT_GT(killed, 15);
}

TEST_F(WaitingPartsTest, KeepTheirObjectsUntilTheyHaveWaitedForLong) {
  Write(PartOf(0, 1));
  Sweep(Opened(), std::chrono::seconds(0));
  EXPECT_EQ(FilesIn("objects"), 1U);
  for (const auto& part : std::filesystem::directory_iterator(root_ / "parts")) {
    timespec times[2] = {{}, {}};
    ASSERT_EQ(::utimensat(AT_FDCWD, part.path().c_str(), times, 0), 0);  // long ago
  }
  Sweep(Opened(), std::chrono::seconds(0));
  EXPECT_EQ(FilesIn("objects"), 0U);
  EXPECT_EQ(FilesIn("parts"), 0U);
  std::filesystem::remove(root_ / "parts");  // as in a store of an older version
  Sweep(Opened(), std::chrono::seconds(0));
}

}  // namespace
}  // namespace layercast
