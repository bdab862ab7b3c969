// Standard error as a terminal: whether it is one, and the escape sequence by which a line of it is taken back. Used by
// the program's progress bars, and by what else writes there while one is shown.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace layercast {

// Moves to the beginning of the line, and wipes it.
inline constexpr std::string_view kWipeLine = "\r\x1b[K";

// Whether standard error is a terminal that knows kWipeLine.
inline bool StandardErrorIsTerminal() {
  if (::isatty(STDERR_FILENO) != 1) return false;
  const char* const kind = std::getenv("TERM");
  return kind != nullptr && std::string_view(kind) != "dumb" && *kind != '\0';
}

}  // namespace layercast
