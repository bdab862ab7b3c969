// What a subcommand prints: one JSON object for scripts, or text for people. Logs go elsewhere (src/base/log.h).
#pragma once

#include <string_view>

#include "src/control/json_forms.h"

namespace layercast::cli {

// Resource; main's thread only.
class Output {
 public:
  explicit Output(bool json) : json_(json) {}

  bool json() const { return json_; }
  bool printed() const { return printed_; }

  // With --json `object`, on one line; else `text`. Standard output is flushed, so that a reader of a pipe sees it.
  // With --json it may be called once. Throws kUnavailable if standard output takes nothing more.
  void Print(const Json& object, std::string_view text);

 private:
  bool json_;
  bool printed_ = false;
};

}  // namespace layercast::cli
