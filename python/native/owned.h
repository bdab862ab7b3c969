// What holds a C++ object whose end waits for threads: it is ended without the GIL, by close(), when Python drops it,
// or before the interpreter ends.
#pragma once

#include <unistd.h>

#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "layercast/error.h"
#include "python/native/native.h"
#include "python/native/waits.h"

namespace layercast::python {

// Something that close_all, which Python calls before it ends, closes. Resource.
class Closable {
 public:
  Closable();
  virtual ~Closable();
  Closable(const Closable&) = delete;
  Closable& operator=(const Closable&) = delete;
  virtual void Close() = 0;  // may be called twice; needs the GIL, and gives it up while it waits
  // Gives up the calls under way, and waits a moment until they have returned; needs the GIL.
  virtual void GiveUp() = 0;
};

// Resource. `what` ("publisher") names it in errors. A T whose calls can be given up has a Cancel.
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
    const GilReleased released;
    object.reset();
  }

  void GiveUp() override {
    const std::shared_ptr<T> object = ::getpid() == process_ ? object_ : nullptr;
    if (object == nullptr) return;
    if constexpr (requires { object->Cancel(); }) {
      const GilReleased released;
      // Again and again, for a call may only be about to begin; nothing tells that the last one has let go.
      for (int i = 0; object.use_count() > kNoCalls && i < kLooks; ++i) {
        object->Cancel();
        std::this_thread::sleep_for(kSignalLook);
      }
    }
  }

 private:
  static constexpr int kNoCalls = 2;  // owners, if no call is under way: this, and who looks
  static constexpr int kLooks = 50;   // a second

  const char* const what_;
  const int process_ = ::getpid();
  std::shared_ptr<T> object_;
};

}  // namespace layercast::python
