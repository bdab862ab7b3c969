#include "cli/terminal/output.h"

#include <cstdio>

#include "src/base/check.h"
#include "src/base/utf8.h"

namespace layercast::cli {

void Output::Print(const Json& object, std::string_view text) {
  LAYERCAST_CHECK(!json_ || !printed_);
  printed_ = true;
  // Names and messages come from files and peers. In JSON all but printable ASCII is escaped, and bytes that are not
  // UTF-8 are replaced instead of making this fail.
  std::string out = json_ ? object.dump(-1, ' ', true, Json::error_handler_t::replace) : EscapedLines(text);
  if (!out.ends_with('\n')) out.push_back('\n');
  const bool written = std::fwrite(out.data(), 1, out.size(), stdout) == out.size();
  if (!written || std::fflush(stdout) != 0) {
    throw Error(ErrorCode::kUnavailable, "standard output: cannot write " + std::to_string(out.size()) + " bytes");
  }
}

void Output::PrintAndThrow(Json object, std::string_view text, ErrorCode code,
                           const std::vector<std::string>& problems) {
  std::string message = problems.front();
  if (problems.size() > 1 && json_) {
    message += " (and " + std::to_string(problems.size() - 1) + " more problems)";
  } else if (problems.size() > 1) {
    message = std::to_string(problems.size()) + " problems:";
    for (const std::string& problem : problems) message += "\n  " + problem;
  }
  const Error error(code, message);
  object["error"] = ErrorToJson(error);
  Print(object, text);
  throw error;
}

}  // namespace layercast::cli
