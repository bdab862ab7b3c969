#include "src/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <sstream>

namespace layercast {
namespace {

using ::testing::HasSubstr;

TEST(Log, GoesToStandardErrorWhereTheHostSaysNothing) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  log::info("layer {} of {}", 3, 7);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("[layercast] info: layer 3 of 7\n"));
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
}

TEST(Log, GoesToTheLoggerThatTheHostRegistered) {
  std::ostringstream lines;
  auto logger = std::make_shared<spdlog::logger>("layercast", std::make_shared<spdlog::sinks::ostream_sink_mt>(lines));
  spdlog::register_logger(logger);
  log::warn("slow");
  spdlog::drop("layercast");
  EXPECT_THAT(lines.str(), HasSubstr("slow"));
}

TEST(Log, ANameCannotActOnTheTerminalOrBeginALine) {
  ::testing::internal::CaptureStderr();
  log::warn("'{}'", "a\n12:00:00 [x] info: forged\x1b[2J\xc2\x85\xff");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("warning: 'a\\x0a12:00:00 [x] info: forged\\x1b[2J\\xc2\\x85\\xff'\n"));
}

TEST(Log, NamesTheRoleOfAProgram) {
  log::SetUp("rank1");
  ::testing::internal::CaptureStderr();
  log::error("gone");
  spdlog::drop("layercast");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("[rank1] error: gone\n"));
}

}  // namespace
}  // namespace layercast
