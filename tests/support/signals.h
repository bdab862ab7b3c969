// Signals that come in the middle of a wait, as a profiler's or an ended child's do: a handler takes the signal, and
// the system call returns with EINTR.
#pragma once

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>

namespace layercast::testing {

// While it lives, SIGUSR1 does nothing but interrupt waits.
class Interruptions {
 public:
  Interruptions() {
    struct sigaction action = {};
    action.sa_handler = [](int /*signal*/) {};
    ::sigaction(SIGUSR1, &action, &before_);
  }
  ~Interruptions() { ::sigaction(SIGUSR1, &before_, nullptr); }
  Interruptions(const Interruptions&) = delete;
  Interruptions& operator=(const Interruptions&) = delete;

  static void Interrupt(pid_t thread) { ::syscall(SYS_tgkill, ::getpid(), thread, SIGUSR1); }

  // Interrupts the thread of that name, once it waits.
  static void InterruptWaiting(const std::string& name) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < end) {
      for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        if (ReadAll(task.path() / "comm") != name + "\n") continue;
        if (ReadAll(task.path() / "stat").find(") S ") == std::string::npos) continue;
        return Interrupt(static_cast<pid_t>(std::stol(task.path().filename())));
      }
      std::this_thread::yield();
    }
    throw std::runtime_error("no thread " + name + " that waits");
  }

 private:
  static std::string ReadAll(const std::filesystem::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  struct sigaction before_ = {};
};

}  // namespace layercast::testing
