// Calls that take their time. They run without the GIL, and Ctrl-C ends them.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "layercast/error.h"
#include "python/native/native.h"

namespace layercast::python {

// A thread that comes back to Python says so, and is counted until it has the GIL. Once the interpreter is about to end
// (EndOfPython), threads other than the one that ends it never come back: Python would end them in the middle of C++,
// which ends the process.
void BeginToReturn();
void HasReturned();
// Called with the GIL, by the thread that ends the interpreter: waits for those that are about to return.
void EndOfPython();

// Gives the GIL up for as long as it lives. Used in place of nb::gil_scoped_release, for what was said of threads.
class GilReleased {
 public:
  GilReleased() : state_(PyEval_SaveThread()) {}
  ~GilReleased() {
    BeginToReturn();
    PyEval_RestoreThread(state_);
    HasReturned();
  }
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  PyThreadState* state_;
};

// How often a wait looks for signals.
inline constexpr std::chrono::milliseconds kSignalLook{20};

// Lets Python's signal handlers run, which only the main thread does; needs the GIL. Throws what they raise.
inline void CheckSignals() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

// Throws kResourceExhausted if there is none to be had.
template <typename Task>
std::jthread StartThread(Task task) {
  try {
    return std::jthread(std::move(task));
  } catch (const std::system_error& error) {
    throw Error(ErrorCode::kResourceExhausted, std::string("no thread can be started: ") + error.what());
  }
}

// Runs `work` on a thread of its own, and returns what it returns. The calling thread looks for signals meanwhile. If a
// handler raises, `cancel` is called, which must make `work` end soon, and what was raised is thrown. `meanwhile` is
// called between two looks, with the GIL.
template <typename Work>
auto RunInterruptibly(Work work, const std::function<void()>& cancel, const std::function<void()>& meanwhile = {}) {
  std::packaged_task<decltype(work())()> task(std::move(work));
  auto result = task.get_future();
  std::jthread thread = StartThread(std::move(task));
  while (true) {
    {
      const GilReleased released;
      if (result.wait_for(kSignalLook) == std::future_status::ready) break;
    }
    try {
      if (meanwhile) meanwhile();
      CheckSignals();
    } catch (...) {
      const GilReleased released;
      cancel();
      result.wait();
      throw;
    }
  }
  const GilReleased released;
  thread.join();
  return result.get();
}

}  // namespace layercast::python
