// How Ctrl-C (SIGINT) ends a subcommand that waits for others or takes long. Used by main, and by subcommands that have
// more to say then.
#pragma once

#include <string_view>

namespace layercast::cli {

// Has SIGINT handled, unless this program was started to ignore it (in the background of a script).
void OnInterrupt(void (*handle)(int));

// For handlers of SIGINT. Writes `said` to standard error, and ends the program with the status by which shells tell
// that SIGINT has ended one.
[[noreturn]] void EndInterrupted(std::string_view said);

}  // namespace layercast::cli
