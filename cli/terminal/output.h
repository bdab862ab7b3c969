// What a subcommand prints: one JSON object for scripts, or text for people. Logs go to standard error
// (src/base/log.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "layercast/error.h"
#include "src/control/json_forms.h"

namespace layercast::cli {

// Resource; main's thread only.
class Output {
 public:
  explicit Output(bool json) : json_(json) {}

  bool json() const { return json_; }
  bool printed() const { return printed_; }

  // Prints `object` on one line with --json, and `text` without. Standard output is flushed, so that a reader of a pipe
  // sees it. With --json it may be called once. Throws kUnavailable if standard output takes nothing more.
  void Print(const Json& object, std::string_view text);
  // Prints a report that has problems, and throws an error: of the first problem and the number of others with --json,
  // where the object holds it too; of all of them without, as `text` does not have them.
  [[noreturn]] void PrintAndThrow(Json object, std::string_view text, ErrorCode code,
                                  const std::vector<std::string>& problems);

 private:
  bool json_;
  bool printed_ = false;
};

}  // namespace layercast::cli
