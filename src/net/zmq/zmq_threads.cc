#include "src/net/zmq/zmq_threads.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "src/base/threads/thread_clock.h"

namespace layercast {
namespace {

// Gives the threads of a context names of their own, such as "7/ZMQbg/IO/0", and returns what these begin with.
std::string NameThreadsOf(zmq::context_t& context) {
  static std::atomic<int> contexts{0};
  const int number = ++contexts % 10'000;  // a thread's name has 15 characters
  context.set(zmq::ctxopt::thread_name_prefix, number);
  return std::to_string(number) + "/ZMQbg";
}

// Linux's identifier for the CPU-time clock of a thread (posix-timers.h in the kernel). pthread_getcpuclockid would
// need a pthread_t, which ZeroMQ does not give out.
clockid_t ClockOfThread(int thread) { return static_cast<clockid_t>((~static_cast<unsigned>(thread) << 3U) | 6U); }

}  // namespace

ZmqThreads::ZmqThreads(zmq::context_t& context) : prefix_(NameThreadsOf(context)) {}

double ZmqThreads::core_seconds() {
  const std::lock_guard lock(mutex_);
  if (clocks_.empty()) Find();
  double seconds = 0;
  for (const clockid_t clock : clocks_) seconds += ReadSeconds(clock);
  return seconds;
}

void ZmqThreads::Find() {
  std::error_code gone;  // threads come and go meanwhile
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", gone)) {
    std::string name;
    std::ifstream comm(task.path() / "comm");
    if (!std::getline(comm, name) || !name.starts_with(prefix_)) continue;
    clocks_.push_back(ClockOfThread(std::stoi(task.path().filename())));
  }
}

}  // namespace layercast
