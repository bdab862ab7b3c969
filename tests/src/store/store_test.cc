// A store's writer, readers and collection, each over real files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "layercast/error.h"
#include "src/base/digest/digest.h"
#include "src/store/collection.h"
#include "src/store/lease.h"
#include "src/store/store_writer.h"
#include "src/store/stored_object.h"
#include "src/store/version_store.h"
#include "tests/support/temp_folder.h"

namespace layercast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::chrono::seconds kNow{0};  // no grace

// A version's tensors by name, as bytes.
using Tensors = std::map<std::string, std::vector<std::byte>>;

std::vector<std::byte> Bytes(std::size_t count, unsigned char value) {
  std::vector<std::byte> bytes(count, std::byte{value});
  for (std::size_t i = 0; i < count; i += 1024) bytes[i] = static_cast<std::byte>(i / 1024);  // leaves differ
  return bytes;
}

// Three tensors: two of the step's own, of several leaves and of less than one, and one that all steps have.
Tensors TensorsOf(unsigned char step) {
  return {{"big", Bytes(20000, step)}, {"same", Bytes(9000, 77)}, {"small", Bytes(100, step)}};
}

VersionRecord RecordOf(const Tensors& tensors, const std::string& lineage, std::uint64_t step, const std::string& run) {
  std::vector<ManifestEntry> entries;
  for (const auto& [name, bytes] : tensors) {
    entries.push_back(
        {.spec = {name, DType::kU8, {static_cast<std::int64_t>(bytes.size())}}, .digest = DigestOf(bytes), .amax = 0});
  }
  return {.manifest = Manifest(lineage, step, std::move(entries)), .run = run, .config = "{}", .published_ms = step};
}

class StoreTest : public ::testing::Test {
 protected:
  StoreWriter Writer(const StoreLimits& limits = {}, std::chrono::seconds grace = kNow) {
    return StoreWriter(StoreFolder::Make(root_, failpoints_), limits, failpoints_, grace);
  }

  static Version WriteBy(StoreWriter& writer, std::uint64_t step, const std::string& run = "",
                         const std::string& lineage = "run-17") {
    const Tensors tensors = TensorsOf(static_cast<unsigned char>(step + run.size() * 100));
    const VersionRecord record = RecordOf(tensors, lineage, step, run);
    writer.Write(record, [&](std::uint32_t tensor) {
      return std::span<const std::byte>(std::next(tensors.begin(), tensor)->second);
    });
    return record.manifest.version();
  }

  Version Write(std::uint64_t step, const std::string& run = "", const StoreLimits& limits = {}) {
    StoreWriter writer = Writer(limits);
    return WriteBy(writer, step, run);
  }

  VersionStore Opened() const { return VersionStore(StoreFolder::Open(root_), std::chrono::milliseconds(0)); }

  std::vector<std::uint64_t> Steps() const {
    std::vector<std::uint64_t> steps;
    for (const StoredVersion& stored : Opened().List()) steps.push_back(stored.version().step);
    return steps;
  }

  std::vector<std::string> FilesIn(const std::string& folder) const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root_ / folder)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    return files;
  }

  // The error of a call.
  template <class Call>
  static Error Thrown(const Call& call) {
    try {
      call();
    } catch (const Error& error) {
      return error;
    }
    return {ErrorCode::kInternal, "no error"};
  }

  void ExpectWhole(const std::vector<std::uint64_t>& steps) const {
    EXPECT_EQ(Steps(), steps);
    WorkerPool pool(1);
    for (const auto& checked : Opened().Check(pool)) EXPECT_THAT(checked.wrong, IsEmpty()) << checked.name;
  }

  TempFolder folder_;
  std::filesystem::path root_ = folder_ / "store";
  FailPoints failpoints_;
};

TEST_F(StoreTest, GivesBackWhatWasWritten) {
  const Version version = Write(40);
  const StoredVersion stored = Opened().Find("run-17", 40);
  EXPECT_EQ(stored.version(), version);
  EXPECT_EQ(stored.record.config, "{}");
  WorkerPool pool(2);
  std::uint32_t tensor = 0;
  for (const auto& [name, bytes] : TensorsOf(40)) {
    const Digest& digest = stored.record.manifest.entry(tensor++).digest;
    StoredObject object(StoreFolder::Open(root_).Object(digest), digest, bytes.size());
    object.CheckAll(pool);
    EXPECT_TRUE(std::ranges::equal(object.bytes(), bytes)) << name;
  }
  EXPECT_THAT(FilesIn("tmp"), IsEmpty());
}

TEST_F(StoreTest, HoldsATensorOnceHoweverManyVersionsHaveIt) {
  for (const std::uint64_t step : {1, 2, 3}) Write(step);
  EXPECT_EQ(FilesIn("objects").size(), 1 + 2 * 3);
  EXPECT_EQ(Opened().List().back().added_bytes, ObjectBytes(20000) + ObjectBytes(100));
}

TEST_F(StoreTest, NamesTheNewestRunsNewestStep) {
  for (const std::uint64_t step : {40, 41, 42}) Write(step, "first");
  const Version old = Opened().Find("run-17", 41).version();
  const Version resumed = Write(41, "second");
  const VersionStore store = Opened();
  EXPECT_EQ(store.Find("", std::nullopt).version(), resumed);
  EXPECT_EQ(store.Find("run-17", 41).version(), resumed);
  EXPECT_EQ(store.Find("run-17", 40).record.run, "first");
  const Error nobodys = Thrown([&] { static_cast<void>(store.Find("run-17", 42)); });  // until the run gets there
  EXPECT_EQ(nobodys.code(), ErrorCode::kNotFound);
  EXPECT_THAT(nobodys.what(), AllOf(HasSubstr("run-17"), HasSubstr("at step 42"), HasSubstr(resumed.ToString())));
  EXPECT_EQ(store.Find("", std::nullopt, old.digest).version(), old);
  EXPECT_NE(old.digest, resumed.digest);
}

TEST_F(StoreTest, RefusesAStepThatIsNotNewerAndARunThatAnotherHasFollowed) {
  Write(41);
  const Version same = Write(41);  // as after a crash: it is there
  EXPECT_EQ(Opened().Find("run-17", 41).version(), same);
  EXPECT_THAT(Thrown([&] { Write(40); }).what(), HasSubstr("expected a step after 41, got run-17@40"));
  Write(41, "second");
  Write(42, "third");
  EXPECT_THAT(Thrown([&] { Write(43, "second"); }).what(), HasSubstr("expected run 'third' or a new one"));
}

TEST_F(StoreTest, LetsOneOfTwoPublishersHaveAStep) {
  StoreWriter first = Writer();
  WriteBy(first, 1);
  const auto write = [&](unsigned char value) {
    StoreWriter writer = Writer({}, kStoreGrace);
    const Tensors tensors = TensorsOf(value);
    return Thrown([&] {
      writer.Write(RecordOf(tensors, "run-17", 2, ""), [&](std::uint32_t tensor) {
        return std::span<const std::byte>(std::next(tensors.begin(), tensor)->second);
      });
    });
  };
  std::vector<std::string> said(2);
  {
    std::jthread one([&] { said[0] = write(100).what(); });
    std::jthread other([&] { said[1] = write(200).what(); });
  }
  std::ranges::sort(said);
  EXPECT_EQ(said[0], "no error");
  EXPECT_THAT(said[1], HasSubstr("expected a step after 2, got run-17@2"));
  ExpectWhole({1, 2});
}

TEST_F(StoreTest, LetsTwoPublishersBeginRunsAtOnce) {
  Write(1, "a");
  const auto write = [&](const std::string& run) {
    StoreWriter writer = Writer({}, kStoreGrace);
    WriteBy(writer, 2, run);
  };
  {
    std::jthread one([&] { write("bb"); });
    std::jthread other([&] { write("ccc"); });
  }
  EXPECT_EQ(Opened().Runs(DigestOfLineage("run-17")).size(), 3);
  EXPECT_EQ(Steps().back(), 2);
}

TEST_F(StoreTest, IsWholeWhereverItsWriterIsKilled) {
  Write(1);
  int killed = 0;
  for (bool done = false; !done; ++killed) {
    std::filesystem::remove_all(root_);
    Write(1);
    const pid_t child = ::fork();
    if (child == 0) {
      FailPoints failpoints("store.step=kill@" + std::to_string(killed));
      StoreWriter writer(StoreFolder::Make(root_, failpoints), {}, failpoints, std::chrono::seconds(60));
      WriteBy(writer, 2, "second");
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    done = WIFEXITED(status);
    const std::vector<std::uint64_t> steps = Steps();
    ExpectWhole(steps);
    EXPECT_TRUE(!done || steps.size() == 2);
    Write(2, "second");  // its publisher's restart
    Write(3, "second");
    ExpectWhole({1, 2, 3});
    EXPECT_THAT(FilesIn("tmp"), IsEmpty()) << killed;
    EXPECT_EQ(FilesIn("objects").size(), 1 + 2 * 3) << killed;
    EXPECT_EQ(Opened().Find("", std::nullopt).version().step, 3);
  }
  EXPECT_GT(killed, 15);  // steps of one version
}

TEST_F(StoreTest, BecomesOneWhereverWhoMakesItIsKilled) {
  for (int step = 0, done = 0; done == 0; ++step) {
    std::filesystem::remove_all(root_);
    const pid_t child = ::fork();
    if (child == 0) {
      FailPoints failpoints("store.step=kill@" + std::to_string(step));
      static_cast<void>(StoreFolder::Make(root_, failpoints));
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    done = WIFEXITED(status) ? 1 : 0;
    Write(1);
    ExpectWhole({1});
  }
}

TEST_F(StoreTest, SaysThatTheDiskIsFullAndHasWhatItHad) {
  Write(1);
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{10000, 10000};  // less than one tensor
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const Error full = Thrown([&] { Write(2); });
    ::_exit(full.code() == ErrorCode::kResourceExhausted ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ExpectWhole({1});
  EXPECT_THAT(FilesIn("tmp"), IsEmpty());
}

TEST_F(StoreTest, IsNotMadeOfAFolderWithOtherFiles) {
  std::filesystem::create_directories(root_);
  std::ofstream(root_ / "config.json") << "{}";
  EXPECT_THAT(Thrown([&] { Write(1); }).what(), HasSubstr("expected a store, or an empty folder"));
  EXPECT_EQ(Thrown([&] { static_cast<void>(Opened()); }).code(), ErrorCode::kNotFound);
  root_ /= "config.json";
  EXPECT_EQ(Thrown([&] { Write(1); }).code(), ErrorCode::kInvalidArgument);
}

TEST_F(StoreTest, KeepsTheNewestVersionsAndThoseThatArePinned) {
  Write(1);
  Opened().Pin(Opened().Find("run-17", 1).name, true);
  for (const std::uint64_t step : {2, 3, 4}) Write(step, "", {.versions = 2});
  ExpectWhole({1, 3, 4});
  EXPECT_EQ(Thrown([&] { Opened().Evict(Opened().Find("run-17", 1).name); }).code(), ErrorCode::kFailedPrecondition);
  Opened().Pin(Opened().Find("run-17", 1).name, false);
  Write(5, "", {.versions = 2});
  ExpectWhole({4, 5});
  EXPECT_EQ(FilesIn("objects").size(), 1 + 2 * 2);
  EXPECT_THAT(FilesIn("evicted"), IsEmpty());
}

TEST_F(StoreTest, KeepsToItsBytes) {
  for (const std::uint64_t step : {1, 2, 3}) Write(step, "", {.versions = 9, .bytes = 55000});  // two of them
  ExpectWhole({2, 3});
  Write(4, "", {.versions = 9, .bytes = 1});
  ExpectWhole({4});
}

TEST_F(StoreTest, FreesNothingThatIsRead) {
  Write(1);
  const StoreFolder folder = StoreFolder::Open(root_);
  const StoredVersion read = Opened().Find("run-17", 1);
  {
    const Lease lease(folder, read.name);
    Write(2, "", {.versions = 1});
    EXPECT_EQ(Steps(), std::vector<std::uint64_t>{2});
    EXPECT_EQ(FilesIn("objects").size(), 1 + 2 * 2);
  }
  Sweep(Opened(), kNow);
  EXPECT_EQ(FilesIn("objects").size(), 1 + 2);
  ExpectWhole({2});
}

TEST_F(StoreTest, FreesNothingThatIsYoung) {
  Write(1);
  Opened().Evict(Opened().Find("run-17", 1).name);
  Sweep(Opened(), std::chrono::seconds(60));
  EXPECT_EQ(FilesIn("objects").size(), 3);
  Sweep(Opened(), kNow);
  EXPECT_THAT(FilesIn("objects"), IsEmpty());
}

TEST_F(StoreTest, DoesNotShowAVersionOfWhichSomethingIsMissing) {
  Write(1);
  Write(2);
  const StoredVersion torn = Opened().Find("run-17", 2);
  const std::filesystem::path object = StoreFolder::Open(root_).Object(torn.record.manifest.entry(0).digest);
  std::filesystem::resize_file(object, 100);
  EXPECT_EQ(Steps(), std::vector<std::uint64_t>{1});
  const Error error = Thrown([&] { static_cast<void>(Opened().Find("run-17", 2)); });
  EXPECT_THAT(error.what(), AllOf(HasSubstr("run-17@2"), HasSubstr("'big'"), HasSubstr("got 100")));
  Write(3);  // the others go on
  EXPECT_EQ(Steps(), (std::vector<std::uint64_t>{1, 3}));
}

TEST_F(StoreTest, WaitsForAnObjectThatIsShownLate) {
  Write(1);
  const Digest digest = Opened().Find("run-17", 1).record.manifest.entry(0).digest;
  const std::filesystem::path object = StoreFolder::Open(root_).Object(digest);
  std::filesystem::rename(object, root_ / "withheld");
  const VersionStore patient(StoreFolder::Open(root_), std::chrono::seconds(60));
  std::jthread late([&] { std::filesystem::rename(root_ / "withheld", object); });
  EXPECT_EQ(patient.Find("run-17", 1).version().step, 1);
}

TEST_F(StoreTest, FindsTheLatestWhereTheListIsStale) {
  const Version version = Write(1);
  EXPECT_TRUE(std::filesystem::exists(root_ / "latest"));
  EXPECT_EQ(Opened().Find("", std::nullopt).version(), version);
  std::filesystem::remove(root_ / "latest");  // as where its writer died before
  EXPECT_EQ(Opened().Find("", std::nullopt).version(), version);
}

TEST_F(StoreTest, ChecksEveryByteThatIsRead) {
  Write(1);
  const StoredVersion stored = Opened().Find("run-17", 1);
  const Digest digest = stored.record.manifest.entry(0).digest;
  const std::filesystem::path object = StoreFolder::Open(root_).Object(digest);
  std::fstream(object, std::ios::in | std::ios::out).seekp(9000).put('x');
  WorkerPool pool(1);
  StoredObject opened(object, digest, 20000);
  opened.Check(0, 8192, pool);  // the leaf beside it
  const Error error = Thrown([&] { opened.Check(8191, 2, pool); });
  EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
  EXPECT_THAT(error.what(), HasSubstr("its bytes from 8192 on are not those that were stored"));
  const auto checked = Opened().Check(pool);
  ASSERT_EQ(checked.size(), 1);
  EXPECT_THAT(checked.front().wrong, ElementsAre(HasSubstr("'big'")));
}

TEST_F(StoreTest, RefusesLeavesThatAreNotTheObjects) {
  Write(1);
  const Digest digest = Opened().Find("run-17", 1).record.manifest.entry(0).digest;
  const std::filesystem::path object = StoreFolder::Open(root_).Object(digest);
  std::fstream(object, std::ios::in | std::ios::out).seekp(20001).put('x');
  EXPECT_EQ(Thrown([&] { StoredObject(object, digest, 20000); }).code(), ErrorCode::kCorrupt);
}

TEST_F(StoreTest, PassesOverARecordThatIsNotWhole) {
  Write(1);
  Write(2);
  const std::filesystem::path record = root_ / "versions" / Opened().Find("run-17", 2).name.ToString();
  std::filesystem::resize_file(record, std::filesystem::file_size(record) - 1);
  EXPECT_EQ(Steps(), std::vector<std::uint64_t>{1});
  WorkerPool pool(1);
  EXPECT_THAT(Opened().Check(pool).back().wrong, ElementsAre(HasSubstr("version record: ")));
  Opened().Evict(Opened().Find("run-17", 1).name);
  Sweep(Opened(), kNow);  // what the record names is not known
  EXPECT_EQ(FilesIn("objects").size(), 1 + 2 * 2);
}

TEST_F(StoreTest, WritesNothingThatHasChangedSinceItWasPublished) {
  StoreWriter writer = Writer();
  const Tensors tensors = TensorsOf(1);
  const std::vector<std::byte> other = Bytes(20000, 9);
  const Error error = Thrown([&] {
    writer.Write(RecordOf(tensors, "run-17", 1, ""), [&](std::uint32_t) { return std::span<const std::byte>(other); });
  });
  EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
  EXPECT_THAT(Steps(), IsEmpty());
}

}  // namespace
}  // namespace layercast
