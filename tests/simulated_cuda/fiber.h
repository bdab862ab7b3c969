// A flow of control with a stack of its own, which a thread enters, and which goes back to the thread when it likes.
// Sanitizers are told of each switch. Used by simulated_block.cc.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>
#include <memory>

namespace simulated_cuda {

// Resource; one thread at a time, not always the same. May be destroyed whenever it is not entered; what lies on its
// stack is then forgotten.
class Fiber {
 public:
  // `body` begins when the fiber is first entered, and must not end.
  explicit Fiber(std::function<void()> body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void Enter();  // by a thread; returns when the fiber leaves
  void Leave();  // by the fiber; returns when it is entered again

 private:
  static void Begin(unsigned low, unsigned high);

  const std::function<void()> body_;
  const std::unique_ptr<std::byte[]> stack_;
  ucontext_t inside_{};
  ucontext_t outside_{};
  const void* outside_stack_ = nullptr;  // AddressSanitizer's, as are the next two
  std::size_t outside_bytes_ = 0;
  void* inside_frames_ = nullptr;
  void* inside_tsan_ = nullptr;  // ThreadSanitizer's
  void* outside_tsan_ = nullptr;
};

}  // namespace simulated_cuda
