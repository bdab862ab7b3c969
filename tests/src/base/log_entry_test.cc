#include "src/base/log_entry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace layercast {
namespace {

using std::chrono::system_clock;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// What a program whose log is JSON writes while that runs.
std::string Logged(const std::function<void()>& run) {
  ::setenv(log::kFormatVariable, "json", 1);
  log::SetUp("serve");
  ::unsetenv(log::kFormatVariable);
  ::testing::internal::CaptureStderr();
  run();
  spdlog::drop("layercast");
  return ::testing::internal::GetCapturedStderr();
}

TEST(LogEntry, OfFactsIsOneJsonObjectALine) {
  const auto at = system_clock::time_point(std::chrono::milliseconds(1'795'932'428'123));
  const std::string line =
      log::AsJson(at, "info", "serve", "synced",
                  {{"peer", std::string("tcp://a")}, {"bytes", std::uint64_t{7}}, {"seconds", 0.25}});
  EXPECT_THAT(line,
              StartsWith("{\"ts\":\"2026-11-29T06:07:08.123Z\",\"level\":\"info\",\"component\":\"serve\",\"pid\":"));
  EXPECT_THAT(line, EndsWith("\"message\":\"synced\",\"fields\":{\"peer\":\"tcp://a\",\"bytes\":7,\"seconds\":0.25}}"));
}

TEST(LogEntry, OfFactsHasThemBehindItsTextForPeople) {
  EXPECT_EQ(log::AsText("synced", {{"peer", std::string("tcp://a")}, {"bytes", std::uint64_t{7}}, {"seconds", 0.25}}),
            "synced peer=tcp://a bytes=7 seconds=0.25");
  EXPECT_EQ(log::AsText("synced", {{"peer", std::string()}, {"path", std::string("a b")}}),
            "synced peer='' path='a b'");
}

TEST(LogEntry, NoNameEndsTheLineOrTheStringThatItIsIn) {
  const std::string line =
      log::AsJson({}, "info", "serve", "'a\"b\\c\n{\x1b[2J\xff'", {{"peer", std::string("x\n\"y\xc2\x85")}});
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_THAT(line, HasSubstr(R"("message":"'a\"b\\c\\x0a{\\x1b[2J\\xff'")"));
  EXPECT_THAT(line, HasSubstr(R"({"peer":"x\\x0a\"y\\xc2\\x85"})"));
  EXPECT_THAT(log::AsJson({}, "info", "serve", "two problems:\n  one", {}), HasSubstr(R"(two problems:\n  one)"));
}

TEST(LogEntry, AFactThatIsNoNumberIsNull) {
  EXPECT_THAT(log::AsJson({}, "info", "serve", "m", {{"seconds", std::nan("")}}), HasSubstr("{\"seconds\":null}"));
}

TEST(LogEntry, EveryEntryOfAProgramWhoseLogIsJsonIsJson) {
  const std::string said = Logged([] {
    EXPECT_TRUE(log::WritesJson());
    log::warn("layer {} of {}", 3, 7);
    log::Write(log::Level::kInfo, "synced", std::vector<log::Field>{{"session", std::string("e/1")}});
    log::debug("not at this level");
  });
  EXPECT_THAT(said, AllOf(HasSubstr("\"level\":\"warning\",\"component\":\"serve\""),
                          HasSubstr("\"message\":\"layer 3 of 7\",\"fields\":{}}\n"), HasSubstr("\"level\":\"info\""),
                          EndsWith("\"fields\":{\"session\":\"e/1\"}}\n")));
  EXPECT_EQ(std::ranges::count(said, '\n'), 2);
  EXPECT_FALSE(log::WritesJson());
}

TEST(LogEntry, OfAFloodOfWarningsOfOneKindMostAreLeftOut) {
  const std::string said = Logged([] {
    for (int i = 0; i < 1000; ++i) log::warn("receiver {} of this test is late", i);
    log::warn("another kind");
    for (int i = 0; i < 100; ++i) log::info("receiver {} is served", i);
  });
  const auto of = [&](const std::string& words) {
    int found = 0;
    for (std::size_t at = said.find(words); at != std::string::npos; at = said.find(words, at + 1)) ++found;
    return found;
  };
  EXPECT_GE(of("of this test is late"), 20);
  EXPECT_LT(of("of this test is late"), 100);  // a machine that stands still for a while lets some more through
  EXPECT_EQ(of("another kind"), 1);
  EXPECT_EQ(of("is served"), 100);
}

}  // namespace
}  // namespace layercast
