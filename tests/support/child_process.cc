#include "tests/support/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <array>
#include <filesystem>
#include <stdexcept>

#include "src/base/deadline.h"

namespace layercast::test {

ChildProcess::ChildProcess(const std::vector<std::string>& arguments) {
  std::array<int, 2> in{};
  std::array<int, 2> out{};
  if (::pipe2(in.data(), O_CLOEXEC) != 0 || ::pipe2(out.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  const UniqueFd child_input(in[0]);
  const UniqueFd child_output(out[1]);
  input_ = UniqueFd(in[1]);
  output_ = UniqueFd(out[0]);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, child_input.get(), 0);
  ::posix_spawn_file_actions_adddup2(&actions, child_output.get(), 1);
  const int error = ::posix_spawnp(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("cannot start " + arguments[0]);
}

ChildProcess::~ChildProcess() {
  if (pid_ < 0) return;
  Signal(SIGKILL);
  Wait();
}

std::string ChildProcess::ReadLine() {
  const Deadline deadline = Deadline::After(std::chrono::seconds(20));
  std::string line;
  while (true) {
    pollfd wanted{output_.get(), POLLIN, 0};
    if (::poll(&wanted, 1, static_cast<int>(deadline.Remaining().count())) <= 0) {
      throw std::runtime_error("the child says nothing");
    }
    char c = 0;
    if (::read(output_.get(), &c, 1) != 1) throw std::runtime_error("the child ended its output after '" + line + "'");
    if (c == '\n') return line;
    line += c;
  }
}

void ChildProcess::Signal(int signal) const { ::kill(pid_, signal); }

void ChildProcess::Freeze() const {
  Signal(SIGSTOP);
  int status = 0;
  ::waitpid(pid_, &status, WUNTRACED);
}

int ChildProcess::Wait() {
  input_ = UniqueFd();
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string FolderOfThisProgram() { return std::filesystem::read_symlink("/proc/self/exe").parent_path().string(); }

}  // namespace layercast::test
