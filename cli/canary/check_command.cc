#include "cli/canary/check_command.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <string_view>
#include <vector>

#include "layercast/error.h"

namespace layercast::cli {
namespace {

// A process group of its own, and no signal blocked: this program blocks those that end it (EndSignal).
class Attributes {
 public:
  Attributes() {
    ::posix_spawnattr_init(&attributes_);
    sigset_t none;
    sigemptyset(&none);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setpgroup(&attributes_, 0);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  }
  ~Attributes() { ::posix_spawnattr_destroy(&attributes_); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  const posix_spawnattr_t* get() const { return &attributes_; }

 private:
  posix_spawnattr_t attributes_{};
};

class Files {
 public:
  Files() {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions_, STDERR_FILENO, STDOUT_FILENO);
  }
  ~Files() { ::posix_spawn_file_actions_destroy(&actions_); }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

std::vector<std::string> EnvironmentWith(const std::map<std::string, std::string>& variables) {
  std::vector<std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (!variables.contains(std::string(text.substr(0, text.find('='))))) all.emplace_back(text);
  }
  for (const auto& [name, value] : variables) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

CheckCommand::CheckCommand(const std::string& command, const std::map<std::string, std::string>& variables) {
  std::vector<std::string> words = {"sh", "-c", command};
  std::vector<std::string> environment = EnvironmentWith(variables);
  const int error = ::posix_spawn(&process_, "/bin/sh", Files().get(), Attributes().get(), Pointers(words).data(),
                                  Pointers(environment).data());
  if (error == 0) return;
  throw Error(ErrorCode::kResourceExhausted, std::string("--check: no process for it: ") + std::strerror(error));
}

CheckCommand::~CheckCommand() {
  ::kill(-process_, SIGKILL);
  if (!status_) ::waitpid(process_, nullptr, 0);
}

std::optional<std::string> CheckCommand::Ended() {
  int status = 0;
  if (!status_ && ::waitpid(process_, &status, WNOHANG) == process_) status_ = status;
  if (!status_) return std::nullopt;
  if (WIFSIGNALED(*status_)) return "it was ended by signal " + std::to_string(WTERMSIG(*status_));
  return *status_ == 0 ? "" : "exit status " + std::to_string(WEXITSTATUS(*status_));
}

}  // namespace layercast::cli
