#include "cli/interrupted.h"

#include <unistd.h>

#include <csignal>

namespace layercast::cli {

void OnInterrupt(void (*handle)(int)) {
  if (std::signal(SIGINT, handle) == SIG_IGN) std::signal(SIGINT, SIG_IGN);
}

void EndInterrupted(std::string_view said) {
  for (const std::string_view part : {std::string_view("\n"), said, std::string_view("\n")}) {
    static_cast<void>(::write(STDERR_FILENO, part.data(), part.size()) == 0);
  }
  ::_exit(128 + SIGINT);
}

}  // namespace layercast::cli
