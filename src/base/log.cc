#include "src/base/log.h"

#include <fmt/format.h>
#include <spdlog/cfg/env.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/log_entry.h"
#include "src/base/rate_limit.h"
#include "src/base/terminal.h"
#include "src/base/utf8.h"

namespace layercast::log {
namespace {

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

// Is handed whole lines, which are safe on a terminal as they are.
class JsonLogger final : public spdlog::logger {
 public:
  explicit JsonLogger(std::string component)
      : logger(kName, std::make_shared<spdlog::sinks::stderr_sink_mt>()), component_(std::move(component)) {
    set_pattern("%v");
    flush_on(spdlog::level::info);
  }
  const std::string& component() const { return component_; }

 private:
  const std::string component_;
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

RateLimits& Limits() {
  static RateLimits limits;  // likewise
  return limits;
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

void Put(spdlog::logger& logger, Level level, std::string_view message, const std::vector<Field>& fields) {
  const spdlog::level::level_enum of_spdlog = OfSpdlog(level);
  const auto* const json = dynamic_cast<const JsonLogger*>(&logger);
  const spdlog::string_view_t name = spdlog::level::to_string_view(of_spdlog);
  const std::string line = json == nullptr ? AsText(message, fields)
                                           : AsJson(std::chrono::system_clock::now(), {name.data(), name.size()},
                                                    json->component(), message, fields);
  logger.log(of_spdlog, spdlog::string_view_t(line));
}

// Writes an entry of this kind, unless it is one of very many.
void PutOrLeaveOut(spdlog::logger& logger, Level level, const std::string& kind, std::string message,
                   std::vector<Field> fields) {
  if (level == Level::kWarn || level == Level::kError) {
    const std::optional<std::uint64_t> left_out = Limits().Admit(kind, Deadline::Clock::now());
    if (!left_out) return;
    if (*left_out > 0) {
      message += " (" + std::to_string(*left_out) + " like it were left out)";
      fields.push_back({"left_out", *left_out});
    }
  }
  Put(logger, level, message, fields);
}

// Whoever logs goes on, whatever becomes of the entry.
template <class Entry>
void Try(spdlog::logger& logger, const Entry& entry) {
  try {
    entry();
  } catch (const std::exception& error) {
    logger.log(spdlog::level::err, "an entry of the log cannot be made: {}", error.what());
  }
}

bool JsonIsWanted() {
  const char* const format = std::getenv(kFormatVariable);
  return format != nullptr && std::string_view(format) == "json";
}

}  // namespace

// On a terminal, a line of text first wipes the one that it is written to, which may show a progress bar, perhaps of
// another process.
void SetUp(const char* role) {
  spdlog::drop(kName);
  if (JsonIsWanted()) {
    spdlog::register_logger(std::make_shared<JsonLogger>(role));
  } else {
    spdlog::register_logger(ToStandardError(role, StandardErrorIsTerminal() ? kWipeLine : ""));
  }
  spdlog::cfg::load_env_levels();  // SPDLOG_LEVEL=debug
}

bool WritesJson() { return dynamic_cast<const JsonLogger*>(Logger().get()) != nullptr; }

// Entries are of one kind if they have one format; those that are only text, if they have one text.
void Write(Level level, fmt::string_view format, fmt::format_args arguments) {
  const std::shared_ptr<spdlog::logger> logger = Logger();
  if (!logger->should_log(OfSpdlog(level))) return;
  Try(*logger, [&] {
    const std::string message = fmt::vformat(format, arguments);
    const std::string kind(format.data(), format.size());
    PutOrLeaveOut(*logger, level, kind == "{}" ? message : kind, message, {});
  });
}

void Write(Level level, std::string_view message, const std::vector<Field>& fields) {
  const std::shared_ptr<spdlog::logger> logger = Logger();
  if (!logger->should_log(OfSpdlog(level))) return;
  Try(*logger, [&] { PutOrLeaveOut(*logger, level, std::string(message), std::string(message), fields); });
}

}  // namespace layercast::log
