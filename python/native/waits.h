// Calls that take their time. They run without the GIL, and Ctrl-C ends them.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <thread>
#include <utility>

#include "python/native/native.h"

namespace layercast::python {

// How often a wait looks for signals.
inline constexpr std::chrono::milliseconds kSignalLook{20};

// Lets Python's signal handlers run, which only the main thread does; needs the GIL. Throws what they raise.
inline void CheckSignals() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

// Runs `work` on a thread of its own, and returns what it returns. The calling thread looks for signals meanwhile. If a
// handler raises, `cancel` is called, which must make `work` end soon, and what was raised is thrown. `meanwhile` is
// called between two looks, with the GIL.
template <typename Work>
auto RunInterruptibly(Work work, const std::function<void()>& cancel, const std::function<void()>& meanwhile = {}) {
  std::packaged_task<decltype(work())()> task(std::move(work));
  auto result = task.get_future();
  std::jthread thread;
  try {
    nb::gil_scoped_release release;
    thread = std::jthread(std::move(task));
    if (result.wait_for(kSignalLook) == std::future_status::ready) {
      thread.join();
      return result.get();
    }
  } catch (const std::system_error& error) {
    throw Error(ErrorCode::kResourceExhausted, std::string("no thread can be started: ") + error.what());
  }
  while (true) {
    try {
      if (meanwhile) meanwhile();
      CheckSignals();
    } catch (...) {
      nb::gil_scoped_release release;
      cancel();
      result.wait();
      throw;
    }
    nb::gil_scoped_release release;
    if (result.wait_for(kSignalLook) == std::future_status::ready) break;
  }
  nb::gil_scoped_release release;
  thread.join();
  return result.get();
}

}  // namespace layercast::python
