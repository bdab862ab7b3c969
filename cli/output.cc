#include "cli/output.h"

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

void Output::PrintAndThrow(Json object, std::string_view text, ErrorCode code, const std::string& first,
                           std::size_t others) {
  const Error error(code, first + (others == 0 ? "" : " (and " + std::to_string(others) + " more problems)"));
  object["error"] = ErrorToJson(error);
  Print(object, text);
  throw error;
}

}  // namespace layercast::cli
