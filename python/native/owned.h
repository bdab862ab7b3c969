// What holds a C++ object whose end waits for threads: it is ended without the GIL, by close(), when Python drops it,
// or before the interpreter ends.
#pragma once

#include <unistd.h>

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "layercast/error.h"
#include "python/native/native.h"

namespace layercast::python {

// Something that close_all, which Python calls before it ends, closes. Resource.
class Closable {
 public:
  Closable();
  virtual ~Closable();
  Closable(const Closable&) = delete;
  Closable& operator=(const Closable&) = delete;
  virtual void Close() = 0;  // may be called twice; needs the GIL, and gives it up while it waits
};

// Resource. `what` ("publisher") names it in errors.
template <typename T>
class Owned : public Closable {
 public:
  Owned(const char* what, std::unique_ptr<T> object) : what_(what), object_(std::move(object)) {}
  ~Owned() override { Close(); }

  // Calls under way keep it until they return.
  std::shared_ptr<T> get() const {
    if (::getpid() != process_) {
      throw Error(ErrorCode::kFailedPrecondition, std::string("the ") + what_ + " is of process " +
                                                      std::to_string(process_) +
                                                      ", which this one was forked from: make one here");
    }
    if (object_ == nullptr) throw Error(ErrorCode::kFailedPrecondition, std::string("the ") + what_ + " is closed");
    return object_;
  }
  bool closed() const { return object_ == nullptr; }
  void Close() override {
    std::shared_ptr<T> object = std::exchange(object_, nullptr);
    if (object == nullptr) return;
    if (::getpid() != process_) {  // its threads are another process's: a child that was forked leaves it alone
      new std::shared_ptr<T>(std::move(object));
      return;
    }
    const nb::gil_scoped_release release;
    object.reset();
  }

 private:
  const char* const what_;
  const int process_ = ::getpid();
  std::shared_ptr<T> object_;
};

}  // namespace layercast::python
