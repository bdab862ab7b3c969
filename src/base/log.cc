#include "src/base/log.h"

#include <fmt/format.h>
#include <spdlog/cfg/env.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "src/base/terminal.h"
#include "src/base/utf8.h"

namespace layercast::log {
namespace {

// Formatted by spdlog, which reports what fails at that and goes on.
struct Text {
  fmt::string_view format;
  fmt::format_args arguments;
};

constexpr const char* kName = "layercast";

// The text of an entry. It may hold names from files and peers, and standard error may be a terminal.
class MessageFlag final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& entry, const std::tm&, spdlog::memory_buf_t& line) override {
    const std::string text = EscapedMessage({entry.payload.data(), entry.payload.size()});
    line.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<spdlog::custom_flag_formatter> clone() const override { return std::make_unique<MessageFlag>(); }
};

std::shared_ptr<spdlog::logger> ToStandardError(const std::string& role, std::string_view before = "") {
  auto logger = std::make_shared<spdlog::logger>(kName, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<MessageFlag>('v').set_pattern(std::string(before) + "%H:%M:%S.%e [" + role + "] %l: %v");
  logger->set_formatter(std::move(formatter));
  logger->flush_on(spdlog::level::info);
  return logger;
}

std::shared_ptr<spdlog::logger> Logger() {
  if (auto registered = spdlog::get(kName)) return registered;
  static const std::shared_ptr<spdlog::logger> own =
      ToStandardError(kName);  // static, because logs may be written before and after main
  return own;
}

spdlog::level::level_enum OfSpdlog(Level level) {
  switch (level) {
    case Level::kDebug: return spdlog::level::debug;
    case Level::kInfo: return spdlog::level::info;
    case Level::kWarn: return spdlog::level::warn;
    case Level::kError: return spdlog::level::err;
  }
  return spdlog::level::err;
}

}  // namespace
}  // namespace layercast::log

template <>
struct fmt::formatter<layercast::log::Text> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  auto format(const layercast::log::Text& text, fmt::format_context& context) const {
    return fmt::vformat_to(context.out(), text.format, text.arguments);
  }
};

namespace layercast::log {

// On a terminal, a line first wipes the one that it is written to, which may show a progress bar, perhaps of another
// process.
void SetUp(const char* role) {
  spdlog::drop(kName);
  spdlog::register_logger(ToStandardError(role, StandardErrorIsTerminal() ? kWipeLine : ""));
  spdlog::cfg::load_env_levels();  // SPDLOG_LEVEL=debug
}

void Write(Level level, fmt::string_view format, fmt::format_args arguments) {
  Logger()->log(OfSpdlog(level), "{}", Text{format, arguments});
}

}  // namespace layercast::log
