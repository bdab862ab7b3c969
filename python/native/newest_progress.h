// How far reloads have come, on its way from the threads that say it to the one that called. Used by receivers and
// controllers.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

#include "layercast/progress.h"
#include "python/native/native.h"

namespace layercast::python {

// Keeps the newest of each engine; a receiver is one without an endpoint. Thread-safe.
class NewestProgress {
 public:
  void Put(const EngineProgress& progress) {
    const std::lock_guard lock(mutex_);
    newest_[progress.engine] = progress;
  }
  // Calls `callback` with what came since the last time; needs the GIL.
  void Tell(const nb::object& callback) {
    std::map<std::size_t, EngineProgress> newest;
    {
      const std::lock_guard lock(mutex_);
      newest.swap(newest_);
    }
    for (const auto& [engine, progress] : newest) {
      callback(progress.endpoint, progress.state, progress.all.stage, progress.all.bytes, progress.all.bytes_total,
               progress.all.layers, progress.all.layers_total);
    }
  }

 private:
  std::mutex mutex_;
  std::map<std::size_t, EngineProgress> newest_;  // by engine; guarded by mutex_
};

}  // namespace layercast::python
