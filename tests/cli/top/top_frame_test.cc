#include "cli/top/top_frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace layercast::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Json ServingStatus(const std::string& lineage) {
  return {{"state", "serving"},
          {"version", {{"lineage", lineage}, {"step", 42}, {"digest", "00112233445566778899aabbccddeeff"}}},
          {"pids", {1, 2}},
          {"progress", nullptr},
          {"channel", {{"name", "shm"}, {"gb_per_s", 9.1}}},
          {"last_error", nullptr}};
}

PeerState Engine(Json status) {
  return {.endpoint = "tcp://engine:7800", .is_engine = true, .engine = std::move(status), .asked = true};
}

std::string Shown(const std::vector<PeerState>& peers, std::size_t width = 120) {
  std::string text;
  for (const std::string& line : TopFrame(peers, width)) text += line + "\n";
  return text;
}

TEST(TopFrame, AnEngineHasItsStateVersionRanksAndRate) {
  EXPECT_THAT(Shown({Engine(ServingStatus("run-17"))}),
              HasSubstr("engine tcp://engine:7800  serving  run-17@42  2 ranks, shm 9.1 GB/s\n"));
}

TEST(TopFrame, AReloadUnderWayHasABarForAllAndOneForEachRank) {
  Json status = ServingStatus("run-17");
  const auto far = [](int rank, int bytes) {
    return Json{{"rank", rank}, {"stage", "receive"}, {"bytes", bytes}, {"bytes_total", 1000}};
  };
  Json progress = far(0, 500);
  progress["version"] = status["version"];
  progress["elapsed_ms"] = 1000;
  progress["ranks"] = {far(0, 400), far(1, 100)};
  status["progress"] = progress;
  const std::string shown = Shown({Engine(status)});
  EXPECT_THAT(shown, AllOf(HasSubstr("run-17@42 receive [####"), HasSubstr("50 %"), HasSubstr("rank 0 receive ["),
                           HasSubstr("40 %"), HasSubstr("rank 1 receive ["), HasSubstr("10 %")));
}

TEST(TopFrame, ADeadPeerIsShownAsSuchWithWhatIsKnownOfIt) {
  PeerState dead = Engine(ServingStatus("run-17"));
  dead.error = "engine tcp://engine:7800 was silent";
  EXPECT_THAT(Shown({dead}), AllOf(HasSubstr("run-17@42"), HasSubstr("NO ANSWER: engine tcp://engine:7800 was silent"),
                                   HasSubstr("1 peers, 1 do not answer")));
  dead.engine = nullptr;
  EXPECT_THAT(Shown({dead}), AllOf(HasSubstr("engine tcp://engine:7800  never answered\n"), HasSubstr("NO ANSWER")));
}

TEST(TopFrame, NoNameActsOnTheTerminalOrIsWiderThanIt) {
  Json status = ServingStatus("\x1b[2J\x1b]0;owned\x07run\n\xe2\x80\xae");
  status["last_error"] = {{"message", "line\n  two\x1b[31m " + std::string(500, 'x')}};
  const std::vector<std::string> lines = TopFrame({Engine(status)}, 60);
  for (const std::string& line : lines) {
    EXPECT_LE(line.size(), 60U) << line;
    for (const char letter : line) EXPECT_GE(static_cast<unsigned char>(letter), 0x20) << line;
    EXPECT_THAT(line, Not(HasSubstr("\xe2\x80\xae")));
  }
  EXPECT_THAT(Shown({Engine(status)}), HasSubstr("\\x1b[2J"));
}

TEST(TopFrame, AnAnswerThatCannotBeReadIsOnePeersOwn) {
  const std::string shown = Shown({Engine({{"state", 7}}), Engine(ServingStatus("run-17"))});
  EXPECT_THAT(shown, AllOf(HasSubstr("its answer cannot be read"), HasSubstr("run-17@42")));
}

TEST(TopFrame, APublisherHasItsVersionsAndWhoReadsThem) {
  wire::StatusAnswer answer;
  answer.versions.push_back({.lineage = "run-17", .step = 42, .digest = {}, .bytes = 5, .readers = 1});
  wire::ReaderStatus reader;
  reader.engine = "gpu-7\x1b[2J";
  reader.rank = 3;
  reader.bytes = 4;
  answer.versions.back().receivers.push_back(reader);
  const PeerState publisher{.endpoint = "tcp://trainer:7700", .publisher = answer, .asked = true};
  EXPECT_THAT(Shown({publisher}), AllOf(HasSubstr("publisher tcp://trainer:7700  1 versions\n"),
                                        HasSubstr("  run-17@42  snapshot  5 bytes  1 readers\n"),
                                        HasSubstr("    gpu-7\\x1b[2J rank 3  4 bytes")));
}

}  // namespace
}  // namespace layercast::cli
