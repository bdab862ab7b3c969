#include "cli/terminal/interrupted.h"

#include <sys/uio.h>
#include <unistd.h>

#include <csignal>

#include "src/base/terminal.h"

namespace layercast::cli {

void OnInterrupt(void (*handle)(int)) {
  if (std::signal(SIGINT, handle) == SIG_IGN) std::signal(SIGINT, SIG_IGN);
}

// The text is written in one go: a progress bar that is drawn at the same time comes before it, and is wiped, or after
// it, where this program ends.
void EndInterrupted(std::string_view said) {
  const std::string_view begin = StandardErrorIsTerminal() ? kWipeLine : "\n";  // what a terminal shows of Ctrl-C
  const std::string_view end = "\n";
  const iovec text[] = {{const_cast<char*>(begin.data()), begin.size()},
                        {const_cast<char*>(said.data()), said.size()},
                        {const_cast<char*>(end.data()), end.size()}};
  static_cast<void>(::writev(STDERR_FILENO, text, 3) == 0);
  ::_exit(128 + SIGINT);
}

}  // namespace layercast::cli
