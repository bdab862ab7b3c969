// What a progress bar says, whatever there is to say and however wide the terminal is.
#include "cli/terminal/bar_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "cli/terminal/rate_meter.h"
#include "cli/terminal/reload_bar.h"
#include "src/base/utf8.h"

namespace layercast::cli {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::uint64_t kGigabyte = 1'000'000'000;
constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
const BarTimes kTimes{.bytes_per_second = 2.3e9, .elapsed = seconds(5)};

BarState Halfway() {
  return {.what = "tcp://127.0.0.1:7800",
          .stage = "receive",
          .bytes = 8 * kGigabyte,
          .bytes_total = 16 * kGigabyte,
          .slowest = "rank 3 at 38 %"};
}

TEST(BarLine, SaysEverythingWhereThereIsRoom) {
  EXPECT_EQ(BarLine(Halfway(), kTimes, 120),
            "tcp://127.0.0.1:7800 receive [##################-------------------] 50 % 8.0/16.0 GB 2.3 GB/s 0:04 left "
            "rank 3 at 38 %");
}

TEST(BarLine, LeavesOutTheLeastFirst) {
  const std::string most = "50 % 8.0/16.0 GB 2.3 GB/s 0:04 left";
  EXPECT_EQ(BarLine(Halfway(), kTimes, 82), "tcp://127.0.0.1:7800 receive " + most + " rank 3 at 38 %");
  EXPECT_EQ(BarLine(Halfway(), kTimes, 60), "receive " + most + " rank 3 at 38 %");
  EXPECT_EQ(BarLine(Halfway(), kTimes, 44), "receive " + most);
  EXPECT_EQ(BarLine(Halfway(), kTimes, 40), "receive 50 % 8.0/16.0 GB 2.3 GB/s 0:04");
  EXPECT_EQ(BarLine(Halfway(), kTimes, 38), "receive 50 % 8.0/16.0 GB 0:04");
  EXPECT_EQ(BarLine(Halfway(), kTimes, 26), "receive 50 % 8.0/16.0 GB");
  EXPECT_EQ(BarLine(Halfway(), kTimes, 14), "receive 50 %");
  EXPECT_EQ(BarLine(Halfway(), kTimes, 5), "50 %");
  EXPECT_EQ(BarLine(Halfway(), kTimes, 3), "50");
  EXPECT_EQ(BarLine(Halfway(), kTimes, 1), "");
  EXPECT_EQ(BarLine(Halfway(), kTimes, 0), "");
}

TEST(BarLine, TotalsThatAreNotKnownAreNotMadeUp) {
  EXPECT_EQ(BarLine({.what = "loading", .stage = "connect"}, {.bytes_per_second = 0, .elapsed = seconds(65)}, 80),
            "loading connect 1:05");
  EXPECT_EQ(BarLine({.what = "loading", .stage = "receive", .bytes = 1'234'567}, {1e6, seconds(3)}, 80),
            "loading receive 1.2 MB 1.0 MB/s 0:03");
  EXPECT_EQ(BarLine({.what = "loading"}, {}, 80), "loading 0:00");
}

TEST(BarLine, ItIsWholeOnlyWhenEverythingIsThere) {
  EXPECT_THAT(BarLine({.what = "", .bytes = 999'999, .bytes_total = 1'000'000}, kTimes, 80), HasSubstr(" 99 % "));
  const std::string whole = BarLine({.what = "", .bytes = 1000, .bytes_total = 1000}, kTimes, 80);
  EXPECT_THAT(whole, HasSubstr("#] 100 % 1.0/1.0 kB"));
  EXPECT_THAT(whole, Not(HasSubstr("left")));
  EXPECT_THAT(BarLine({.what = "", .bytes = 2000, .bytes_total = 1000}, kTimes, 80), HasSubstr("#] 100 %"));
}

TEST(BarLine, TimesThatNobodyWaitsForAreNotSaid) {
  const BarState state{.what = "", .bytes = 1, .bytes_total = 36'000'000};
  EXPECT_THAT(BarLine(state, {1e3, {}}, 80), HasSubstr(" 10:00:00 left"));
  EXPECT_THAT(BarLine(state, {10, {}}, 80), Not(HasSubstr("left")));
  EXPECT_THAT(BarLine(state, {0, {}}, 80), Not(HasSubstr("left")));
}

// Every width, and numbers and names that fit nowhere.
TEST(BarLine, NoLineIsWiderThanTheTerminalOrEndsWithinACharacter) {
  const double endless = std::numeric_limits<double>::infinity();
  const std::string names[] = {"loading", std::string(300, 'x'), "\xD0\xBC\xD0\xBE\xD1\x82\xD0\xBE\xD1\x80",
                               "\xE6\xA8\xA1\xE5\x9E\x8B\xE6\xA8\xA1\xE5\x9E\x8B", "\xF0\x9F\x8E\x81\xFF\x1b[2J\n"};
  for (std::size_t width = 0; width <= 200; ++width) {
    for (const std::string& name : names) {
      for (const std::uint64_t total : {std::uint64_t{0}, std::uint64_t{1}, kGigabyte, kMost}) {
        for (const double rate : {0.0, 1e-9, 2.3e9, 1e300, endless, -endless}) {
          const std::string line =
              BarLine({.what = name, .stage = name, .bytes = total / 3 * 2, .bytes_total = total, .slowest = name},
                      {rate, seconds(std::numeric_limits<std::int32_t>::max())}, width);
          std::size_t columns = 0;  // as wide as any terminal shows them
          for (const char byte : line) {
            const auto first = static_cast<unsigned char>(byte);
            ASSERT_GE(first, 0x20) << line;
            if ((first & 0xC0U) != 0x80U) columns += first >= 0xE0U ? 2 : 1;
          }
          ASSERT_LT(columns, width + (width == 0 ? 1 : 0)) << line;
          ASSERT_FALSE(FindInvalidUtf8(line)) << line;
        }
      }
    }
  }
}

TEST(RateMeter, KnowsTheRateOfTheLastSecondsOnly) {
  using Milliseconds = std::chrono::milliseconds;
  RateMeter meter;
  const RateMeter::Clock::time_point begin{};
  EXPECT_EQ(meter.bytes_per_second(), 0);
  meter.Note(begin, 0);
  EXPECT_EQ(meter.bytes_per_second(), 0);
  for (int i = 1; i <= 50; ++i) meter.Note(begin + i * Milliseconds(200), static_cast<std::uint64_t>(i) * 200);
  EXPECT_DOUBLE_EQ(meter.bytes_per_second(), 1000);
  for (int i = 51; i <= 70; ++i) meter.Note(begin + i * Milliseconds(200), 10'000);  // and then nothing comes
  EXPECT_EQ(meter.bytes_per_second(), 0);
  meter.Note(begin + Milliseconds(20'000), 5);  // something else
  EXPECT_EQ(meter.bytes_per_second(), 0);
}

ReloadProgress Rank(const std::string& stage, std::uint64_t bytes, std::uint64_t total) {
  return {.stage = stage, .bytes = bytes, .bytes_total = total};
}

TEST(ReloadBar, RanksAddUpOnceAllOfThemKnowTheirTotals) {
  EngineProgress engine{.state = "receiving", .ranks = {Rank("receive", 30, 100), Rank("plan", 0, 0)}};
  BarState state = ReloadBarState("loading", {engine});
  EXPECT_EQ(state.stage, "plan");
  EXPECT_EQ(state.bytes, 30U);
  EXPECT_EQ(state.bytes_total, 0U);
  EXPECT_EQ(state.slowest, "");
  engine.ranks[1] = Rank("receive", 10, 100);
  state = ReloadBarState("loading", {engine});
  EXPECT_EQ(state.stage, "receive");
  EXPECT_EQ(state.bytes, 40U);
  EXPECT_EQ(state.bytes_total, 200U);
  EXPECT_EQ(state.slowest, "rank 1 at 10 %");
}

TEST(ReloadBar, SeveralEnginesAreOneLineThatNamesTheSlowest) {
  const EngineProgress first{.endpoint = "tcp://a:1", .state = "receiving", .ranks = {Rank("receive", 90, 100)}};
  EngineProgress second{.endpoint = "tcp://b:1",
                        .engine = 1,
                        .state = "receiving",
                        .ranks = {Rank("receive", 90, 100), Rank("receive", 20, 100)}};
  EXPECT_EQ(ReloadBarState("2 engines", {first, {}}).bytes_total, 0U);  // of the other nothing is known yet
  BarState state = ReloadBarState("2 engines", {first, second});
  EXPECT_EQ(state.bytes_total, 300U);
  EXPECT_EQ(state.slowest, "tcp://b:1 rank 1 at 20 %");
  const EngineProgress done{.endpoint = "tcp://b:1", .engine = 1, .state = "serving", .all = Rank("verify", 200, 200)};
  state = ReloadBarState("2 engines", {first, done});
  EXPECT_EQ(state.bytes, 290U);
  EXPECT_EQ(state.slowest, "tcp://a:1 at 90 %");
}

}  // namespace
}  // namespace layercast::cli
