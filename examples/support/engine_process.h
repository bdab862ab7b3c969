// An engine as a child process: `layercast serve`. For examples; it relies on what docs/cli.md says alone.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include <sys/types.h>

namespace examples {

struct EngineOptions {
  std::filesystem::path program;  // `layercast`
  std::filesystem::path model;
  int tp_size = 1;
  std::string quantization = "none";
  int adapter_slots = 0;
  std::chrono::milliseconds start_timeout{60'000};
};

// The path of `layercast`, which lies beside the program that runs now.
std::filesystem::path ProgramBesideThisOne();

// Resource; one thread only. The engine never outlives it, nor this process.
class EngineProcess {
 public:
  // Starts the engine and waits until it is ready. If it fails, throws std::runtime_error; why, the engine has said on
  // standard error.
  explicit EngineProcess(const EngineOptions& options);
  ~EngineProcess();  // asks the engine to end, and kills it if it does not
  EngineProcess(const EngineProcess&) = delete;
  EngineProcess& operator=(const EngineProcess&) = delete;

  const std::string& endpoint() const { return endpoint_; }

 private:
  void Start(const EngineOptions& options);
  std::string ReadyLine(std::chrono::milliseconds timeout);
  void End() noexcept;

  pid_t pid_ = -1;
  int output_ = -1;  // the engine's standard output
  std::string endpoint_;
};

}  // namespace examples
