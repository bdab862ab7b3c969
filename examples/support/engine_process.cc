#include "examples/support/engine_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>
#include <vector>

namespace examples {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::string> Arguments(const EngineOptions& options) {
  return {options.program.string(),
          "serve",
          "--json",
          "--model",
          options.model.string(),
          "--tp",
          std::to_string(options.tp_size),
          "--quantization",
          options.quantization,
          "--adapter-slots",
          std::to_string(options.adapter_slots)};
}

}  // namespace

std::filesystem::path ProgramBesideThisOne() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "layercast";
}

EngineProcess::EngineProcess(const EngineOptions& options) {
  Start(options);
  try {
    const std::string line = ReadyLine(options.start_timeout);
    const auto ready = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!ready.is_object() || !ready.value("ready", false)) throw std::runtime_error("the engine did not start");
    endpoint_ = ready.at("endpoint").get<std::string>();
  } catch (...) {
    End();
    throw;
  }
}

EngineProcess::~EngineProcess() { End(); }

void EngineProcess::Start(const EngineOptions& options) {
  std::vector<std::string> arguments = Arguments(options);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe for the engine's output");
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {  // only async-signal-safe calls from here on
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(127);
    ::dup2(pipe[1], STDOUT_FILENO);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(pipe[1]);
  output_ = pipe[0];
  if (pid_ < 0) throw std::runtime_error("cannot start " + options.program.string());
}

std::string EngineProcess::ReadyLine(std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  std::string line;
  while (line.find('\n') == std::string::npos) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd ready{.fd = output_, .events = POLLIN, .revents = 0};
    if (left <= 0 || ::poll(&ready, 1, static_cast<int>(left)) == 0) {
      throw std::runtime_error("the engine was not ready after " + std::to_string(timeout.count()) + " ms");
    }
    std::array<char, 4096> bytes{};
    const ssize_t count = ::read(output_, bytes.data(), bytes.size());
    if (count <= 0)
      throw std::runtime_error("the engine ended before it was ready" + (line.empty() ? "" : ": " + line));
    line.append(bytes.data(), static_cast<std::size_t>(count));
  }
  return line.substr(0, line.find('\n'));
}

void EngineProcess::End() noexcept {
  if (output_ >= 0) ::close(output_);
  output_ = -1;
  if (pid_ < 0) return;
  ::kill(pid_, SIGTERM);
  const auto deadline = Clock::now() + std::chrono::seconds(10);
  while (::waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (Clock::now() >= deadline) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  pid_ = -1;
}

}  // namespace examples
