// What a publisher keeps: which versions, in how much memory, and what `lineage@step` and digests mean of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "layercast/publisher.h"
#include "src/session/choose/channel_chooser.h"
#include "src/session/fetch/fetch.h"
#include "src/session/fetch/fetch_sink.h"
#include "src/transport/all/transports.h"
#include "tests/support/error_of.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/temp_folder.h"

namespace layercast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;

constexpr std::size_t kTensors = 10;
constexpr std::int64_t kElements = 25'000;
constexpr std::uint64_t kTensorBytes = kElements * sizeof(float);
constexpr std::uint64_t kVersionBytes = kTensors * kTensorBytes;

using Bytes = std::vector<std::byte>;

// The values of a tensor: those of its latest change.
Bytes ValuesOf(std::size_t tensor, std::uint64_t changed_at) {
  std::vector<float> values(static_cast<std::size_t>(kElements));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(tensor * 1000 + changed_at) + static_cast<float>(i) * 0x1p-10F;
  }
  Bytes bytes(kTensorBytes);
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// The step at which a tensor of the version changed last: one of ten does at each step.
std::uint64_t ChangedAt(std::size_t tensor, std::uint64_t step) {
  std::uint64_t at = step;
  while (at > 0 && at % kTensors != tensor) --at;
  return at;
}

Bytes BytesAt(std::size_t tensor, std::uint64_t step) { return ValuesOf(tensor, ChangedAt(tensor, step)); }

Weights WeightsOf(const std::vector<Bytes>& tensors) {
  std::vector<NamedTensor> named;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto owner = std::make_shared<const Bytes>(tensors[i]);
    const auto elements = static_cast<std::int64_t>(owner->size() / sizeof(float));
    named.push_back({"w" + std::to_string(i), {DType::kF32, {elements}, owner->data(), {}}, owner});
  }
  return {.specs = {}, .walk = [named](std::span<const std::string>) { return MakeWeightsIterator(named); }};
}

Weights WeightsAt(std::uint64_t step) {
  std::vector<Bytes> tensors;
  for (std::size_t tensor = 0; tensor < kTensors; ++tensor) tensors.push_back(BytesAt(tensor, step));
  return WeightsOf(tensors);
}

Weights Small(std::uint64_t seed) { return WeightsOf({ValuesOf(0, seed)}); }

class Collected final : public FetchSink {
 public:
  void OnTensor(std::uint32_t, float, const Digest&) override {}
  void OnAxisAmax(std::uint32_t, std::span<const float>) override {}
  void OnChunk(std::uint32_t chunk, std::span<const RegionView> regions) override {
    Bytes& bytes = chunks[chunk];
    bytes.resize(regions.front().num_bytes());
    Pack(regions.front(), bytes.data());
  }
  std::map<std::uint32_t, Bytes> chunks;
};

class KeptVersionsTest : public ::testing::Test {
 protected:
  std::unique_ptr<FetchSession> Open(const std::string& endpoint, const std::string& lineage = "",
                                     std::optional<std::uint64_t> step = {}, const Digest& digest = {},
                                     const std::string& channel = "zmq") {
    FetchOptions options;
    options.channels = &channels_;
    options.channel = channel;
    options.digest = digest;
    return FetchSession::Open(std::vector{endpoint}, {"engine", 1, 0, 1}, lineage, step, options, none_, Soon());
  }
  // All tensors that the session's version has, each a chunk.
  std::map<std::uint32_t, Bytes> Fetch(FetchSession& session) {
    Schedule schedule;
    for (std::uint32_t i = 0; i < session.manifests().front().size(); ++i) {
      const auto bytes = static_cast<std::uint64_t>(session.manifests().front().entry(i).spec.num_bytes());
      schedule.Add(std::vector<Region>{{.tensor = i, .offset = 0, .row_bytes = bytes, .rows = 1, .stride = 0}});
    }
    Collected sink;
    session.Fetch(schedule, {}, sink, Soon());
    return std::move(sink.chunks);
  }
  std::uint64_t StepOf(FetchSession& session) { return session.manifests().front().version().step; }
  static Deadline Soon() { return Deadline::After(std::chrono::seconds(20)); }

  ChannelChooser channels_;
  FailPoints none_;
};

std::vector<std::string> NamesOf(const VersionList& list) {
  std::vector<std::string> names;
  for (const KeptVersion& kept : list.versions) {
    names.push_back(std::to_string(kept.version.step) + (kept.pinned ? " pinned" : "") +
                    (kept.evicted ? " evicted" : "") + (kept.shadowed ? " shadowed" : ""));
  }
  return names;
}

TEST_F(KeptVersionsTest, OfWhichATenthChangesTakeAboutTwiceTheMemoryOfOneAndKeepTheirBytes) {
  Publisher publisher(PublisherOptions{.retained_versions = 10});
  for (std::uint64_t step = 11; step <= 20; ++step)
    publisher.Publish({.lineage = "run", .step = step}, WeightsAt(step));
  const VersionList list = publisher.Versions();
  EXPECT_EQ(list.versions.front().added_bytes, kVersionBytes);
  EXPECT_EQ(list.versions.back().added_bytes, kTensorBytes);
  EXPECT_EQ(list.versions.back().bytes, kVersionBytes);
  EXPECT_EQ(list.memory_bytes, kVersionBytes + 9 * kTensorBytes);
  for (const std::string channel : {"inproc", "shm", "zmq", "ucx"}) {
    const auto here = TransportsNamed({});
    const auto has = [&](const auto& one) { return one->name() == channel && one->WhyNotHere().empty(); };
    if (std::ranges::none_of(here, has)) continue;  // which is so of ucx alone: builds may lack it
    for (std::uint64_t step = 11; step <= 20; ++step) {
      const auto session = Open(publisher.endpoint(), "run", step, {}, channel);
      const auto chunks = Fetch(*session);
      for (std::size_t tensor = 0; tensor < kTensors; ++tensor) {
        EXPECT_EQ(chunks.at(static_cast<std::uint32_t>(tensor)), BytesAt(tensor, step)) << channel << " step " << step;
      }
    }
  }
}

// What an evicted version has alike with one that is kept stays where it is.
TEST_F(KeptVersionsTest, KeepWhatEvictedOnesHadAlikeWithThem) {
  Publisher publisher(PublisherOptions{.retained_versions = 1, .channels = {"shm", "zmq"}});
  for (std::uint64_t step = 11; step <= 30; ++step) {
    publisher.Publish({.lineage = "run", .step = step}, WeightsAt(step));
    const auto session = Open(publisher.endpoint(), "run", step);
    const auto chunks = Fetch(*session);
    for (std::size_t tensor = 0; tensor < kTensors; ++tensor) {
      EXPECT_EQ(chunks.at(static_cast<std::uint32_t>(tensor)), BytesAt(tensor, step)) << step;
    }
  }
  EXPECT_LE(publisher.Versions().memory_bytes, kVersionBytes + 2 * kTensorBytes);
}

TEST_F(KeptVersionsTest, ArePinnedAndEvictedByWhoeverReachesTheEndpoint) {
  Publisher publisher(PublisherOptions{.retained_versions = 2});
  const Version first = publisher.Publish({.lineage = "run", .step = 1}, Small(1)).version();
  const RemotePublisher remote(publisher.endpoint());
  EXPECT_THAT(NamesOf(remote.Pin(first)), ElementsAre("1 pinned"));
  for (std::uint64_t step = 2; step <= 4; ++step) publisher.Publish({.lineage = "run", .step = step}, Small(step));
  EXPECT_THAT(NamesOf(remote.Versions()), ElementsAre("1 pinned", "2 evicted", "3", "4"));  // 2 goes with the next
  EXPECT_EQ(StepOf(*Open(publisher.endpoint(), "run", 1)), 1U);
  EXPECT_THAT(ErrorOf([&] { remote.Evict(first); }, ErrorCode::kFailedPrecondition),
              AllOf(HasSubstr(publisher.endpoint()), HasSubstr(first.ToString() + " is pinned")));
  remote.Pin(first, false);
  EXPECT_THAT(ErrorOf([&] { Open(publisher.endpoint(), "run", 1); }, ErrorCode::kNotFound), HasSubstr("run@4, run@3"));
  EXPECT_THAT(ErrorOf([&] { remote.Pin(first); }, ErrorCode::kNotFound), HasSubstr("run@3:"));
  remote.Evict(remote.Versions().Named("run@4").version);
  EXPECT_EQ(StepOf(*Open(publisher.endpoint())), 3U);
}

TEST_F(KeptVersionsTest, NoMoreArePinnedThanMayBe) {
  Publisher publisher(PublisherOptions{.retained_versions = 20, .channels = {"zmq"}});
  for (std::uint64_t step = 1; step <= 17; ++step) {
    const Version version = publisher.Publish({.lineage = "run", .step = step}, Small(step)).version();
    if (step <= 16) publisher.Pin(version);
    if (step == 17) {
      EXPECT_THAT(ErrorOf([&] { publisher.Pin(version); }, ErrorCode::kResourceExhausted), HasSubstr("16 versions"));
    }
  }
}

// A reader that is slow has all its bytes, though its version was evicted; they are freed when it has gone.
TEST_F(KeptVersionsTest, AreNotFreedWhileTheyAreRead) {
  Publisher publisher(PublisherOptions{});
  const PublishedVersion read = publisher.Publish({.lineage = "run", .step = 11}, WeightsAt(11));
  publisher.Publish({.lineage = "run", .step = 12}, WeightsAt(12));
  auto reader = Open(publisher.endpoint(), "run", 11, {}, "shm");
  const RemotePublisher remote(publisher.endpoint());
  EXPECT_THAT(NamesOf(remote.Evict(read.version())), ElementsAre("11 evicted", "12"));
  EXPECT_FALSE(read.WaitReleased(std::chrono::milliseconds(0)));
  EXPECT_THAT(ErrorOf([&] { Open(publisher.endpoint(), "run", 11); }, ErrorCode::kNotFound), HasSubstr("run@12"));
  const auto chunks = Fetch(*reader);
  for (std::size_t tensor = 0; tensor < kTensors; ++tensor) {
    EXPECT_EQ(chunks.at(static_cast<std::uint32_t>(tensor)), BytesAt(tensor, 11));
  }
  reader->Close();
  reader.reset();
  EXPECT_TRUE(read.WaitReleased(std::chrono::seconds(20)));
  EXPECT_THAT(NamesOf(remote.Versions()), ElementsAre("12"));
  EXPECT_EQ(remote.Versions().memory_bytes, kVersionBytes);
}

TEST_F(KeptVersionsTest, AreFewerIfTheirMemoryIsBounded) {
  Publisher publisher(PublisherOptions{.retained_versions = 10, .retained_bytes = kVersionBytes + 2 * kTensorBytes});
  for (std::uint64_t step = 11; step <= 20; ++step)
    publisher.Publish({.lineage = "run", .step = step}, WeightsAt(step));
  std::vector<std::string> kept;
  for (const std::string& name : NamesOf(publisher.Versions())) {
    if (!name.ends_with("evicted")) kept.push_back(name);
  }
  EXPECT_THAT(kept, ElementsAre("18", "19", "20"));
}

// A run that is resumed at step 3 takes 3 and 4 over; what the first one had of them goes by its digest.
TEST_F(KeptVersionsTest, OfARunThatWasResumedShadowTheOlderOnes) {
  Publisher publisher(PublisherOptions{.retained_versions = 10});
  std::vector<Version> first;
  for (std::uint64_t step = 1; step <= 4; ++step) {
    first.push_back(publisher.Publish({.lineage = "run", .step = step, .run = "a"}, Small(step)).version());
  }
  const Version resumed = publisher.Publish({.lineage = "run", .step = 3, .run = "b"}, Small(30)).version();
  EXPECT_THAT(NamesOf(publisher.Versions()), ElementsAre("1", "2", "3 shadowed", "4 shadowed", "3"));
  const auto opened = [&](std::optional<std::uint64_t> step, const Digest& digest = {}) {
    return Open(publisher.endpoint(), step ? "run" : "", step, digest)->manifests().front().version();
  };
  EXPECT_EQ(opened(3), resumed);
  EXPECT_EQ(opened(2), first[1]);
  EXPECT_EQ(opened({}), resumed);
  EXPECT_EQ(opened({}, first[2].digest), first[2]);
  EXPECT_EQ(opened(4, first[3].digest), first[3]);
  EXPECT_THAT(ErrorOf([&] { opened(4); }, ErrorCode::kNotFound), HasSubstr("run@4 is not offered"));
  EXPECT_THAT(ErrorOf([&] { opened(3, first[3].digest); }, ErrorCode::kNotFound), HasSubstr(first[3].digest.ToHex()));
  const VersionList list = publisher.Versions();
  EXPECT_EQ(list.Named("run@3").version, resumed);
  EXPECT_EQ(list.Named(first[2].ToString()).version, first[2]);
  EXPECT_EQ(list.Named(first[3].digest.ToHex().substr(0, 8)).version, first[3]);
  EXPECT_THAT(ErrorOf([&] { list.Named("run@4"); }, ErrorCode::kNotFound), HasSubstr(resumed.ToString()));
  const auto publish = [&](std::uint64_t step, const char* run) {
    publisher.Publish({.lineage = "run", .step = step, .run = run}, Small(step));
  };
  EXPECT_THAT(ErrorOf([&] { publish(5, "a"); }, ErrorCode::kInvalidArgument),
              HasSubstr("expected run 'b' or a new one"));
  EXPECT_THAT(ErrorOf([&] { publish(3, "b"); }, ErrorCode::kInvalidArgument), HasSubstr("expected a step after 3"));
  EXPECT_THAT(ErrorOf([&] { publish(3, ""); }, ErrorCode::kInvalidArgument), HasSubstr("expected a step after 3"));
  publisher.Evict(resumed);
  EXPECT_EQ(opened({}), first[1]);  // what is shadowed does not come back
}

class FolderOrdersTest : public KeptVersionsTest {
 protected:
  std::string Save(const std::filesystem::path& folder, std::uint8_t value) {
    std::filesystem::create_directories(folder);
    const std::string file = SafetensorsBytes(R"({"w": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})",
                                              std::string(1, static_cast<char>(value)));
    std::ofstream(folder / "model.safetensors", std::ios::binary) << file;
    return folder.string();
  }
  TempFolder folder_;
};

TEST_F(FolderOrdersTest, HaveAFolderPublishedThatIsAllowed) {
  const std::string inside = Save(folder_.path() / "runs" / "step_7", 7);
  const std::string outside = Save(folder_.path() / "other", 8);
  std::filesystem::create_directory_symlink(outside, folder_.path() / "runs" / "way-out");
  Publisher publisher(PublisherOptions{.allow_paths = {(folder_.path() / "runs").string() + "/"}});
  publisher.Publish({.lineage = "run", .step = 1}, Small(1));
  const RemotePublisher remote(publisher.endpoint());
  const Version version = remote.PublishFolder({.path = inside}, {.lineage = "", .step = 7});
  EXPECT_EQ(version.lineage, "run");
  EXPECT_EQ(Open(publisher.endpoint())->manifests().front().version(), version);
  const auto refused = [&](const std::string& path, ErrorCode code = ErrorCode::kPermissionDenied) {
    return ErrorOf([&] { remote.PublishFolder({.path = path}, {.lineage = "", .step = 8}); }, code);
  };
  const std::string runs = folder_.path() / "runs";
  for (const std::string& path : {outside, runs + "/../other", runs + "/way-out", runs + "/way-out/nowhere",
                                  runs + "-too", std::string("step_7")}) {
    EXPECT_THAT(refused(path), HasSubstr("expected the absolute path of something that is in")) << path;
  }
  for (const std::string& path : {runs, runs + "/nowhere"}) {
    EXPECT_THAT(refused(path, ErrorCode::kNotFound), HasSubstr(path));
  }
  EXPECT_THAT(
      ErrorOf([&] { remote.PublishFolder({.path = inside}, {.lineage = "", .step = 7}); }, ErrorCode::kInvalidArgument),
      HasSubstr("expected a step after 7"));
  EXPECT_THAT(NamesOf(remote.Versions()), ElementsAre("1", "7"));
}

TEST_F(FolderOrdersTest, AreRefusedWhereNoFolderIsAllowed) {
  Publisher publisher(PublisherOptions{});
  const RemotePublisher remote(publisher.endpoint());
  EXPECT_THAT(ErrorOf([&] { remote.PublishFolder({.path = "/tmp"}, {.lineage = "", .step = 1}); },
                      ErrorCode::kPermissionDenied),
              HasSubstr("without allow_paths"));
  EXPECT_THAT(ErrorOf([&] { Publisher({.allow_paths = {"/nowhere"}}); }, ErrorCode::kInvalidArgument),
              HasSubstr("/nowhere"));
}

}  // namespace
}  // namespace layercast
