// Log lines for Python's logging. A thread in Python asks for them: threads that log never wait for the GIL.
#include <pthread.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <new>

#include "python/native/native.h"
#include "python/native/waits.h"

namespace layercast::python {
namespace {

struct Line {
  int level;  // of Python's logging
  std::string text;
};

// Lines that Python has not taken yet. The newest of a flood are kept, and the loss is said.
class Lines final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  static constexpr std::size_t kMost = 10'000;

  // Waits for lines; empty: none come any more.
  std::vector<Line> Take() {
    std::unique_lock lock(waiting_);
    came_.wait(lock, [this] { return ended_ || !lines_.empty(); });
    std::vector<Line> taken(std::make_move_iterator(lines_.begin()), std::make_move_iterator(lines_.end()));
    lines_.clear();
    return taken;
  }
  // In a child that was forked: a thread of the parent's may be waiting, and to wake it would take for ever.
  void BeginAnew() {
    new (&waiting_) std::mutex();
    new (&came_) std::condition_variable();
    ended_ = false;
  }
  void End() {
    const std::lock_guard lock(waiting_);
    ended_ = true;
    came_.notify_all();
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& entry) override {
    const std::lock_guard lock(waiting_);
    if (lines_.size() == kMost) lines_.pop_front();
    lines_.push_back({LevelOf(entry.level), {entry.payload.data(), entry.payload.size()}});
    came_.notify_all();
  }
  void flush_() override {}

 private:
  static int LevelOf(spdlog::level::level_enum level) {
    if (level >= spdlog::level::err) return 40;
    if (level == spdlog::level::warn) return 30;
    return level == spdlog::level::info ? 20 : 10;
  }

  std::mutex waiting_;
  std::condition_variable came_;
  std::deque<Line> lines_;  // guarded by waiting_
  bool ended_ = false;      // guarded by waiting_
};

std::shared_ptr<Lines> TheLines() {
  static auto* lines = new std::shared_ptr<Lines>();  // never freed: threads log until the process ends
  if (*lines == nullptr) {
    *lines = std::make_shared<Lines>();
    auto logger = std::make_shared<spdlog::logger>("layercast", *lines);
    logger->set_level(spdlog::level::debug);
    spdlog::register_logger(logger);
    ::pthread_atfork(nullptr, nullptr, [] { TheLines()->BeginAnew(); });
  }
  return *lines;
}

}  // namespace

void BindLogs(nb::module_& module) {
  module.def("take_logs", [] {
    const std::shared_ptr<Lines> lines = TheLines();
    std::vector<Line> taken;
    {
      const GilReleased released;
      taken = lines->Take();
    }
    nb::list result;
    for (const Line& line : taken) result.append(nb::make_tuple(line.level, line.text));
    return result;
  });
  module.def("end_logs", [] { TheLines()->End(); });
}

}  // namespace layercast::python
