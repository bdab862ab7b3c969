#include "tests/simulated_cuda/fiber.h"

#include <cstdint>
#include <cstdlib>
#include <utility>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace simulated_cuda {
namespace {

constexpr std::size_t kStackBytes = std::size_t{256} << 10;

}  // namespace

Fiber::Fiber(std::function<void()> body)
    : body_(std::move(body)), stack_(std::make_unique_for_overwrite<std::byte[]>(kStackBytes)) {
  ::getcontext(&inside_);
  inside_.uc_stack.ss_sp = stack_.get();
  inside_.uc_stack.ss_size = kStackBytes;
  const auto self = reinterpret_cast<std::uintptr_t>(this);  // makecontext passes integers alone
  ::makecontext(&inside_, reinterpret_cast<void (*)()>(&Fiber::Begin), 2, static_cast<unsigned>(self),
                static_cast<unsigned>(self >> 32));
#ifdef __SANITIZE_THREAD__
  inside_tsan_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#ifdef __SANITIZE_THREAD__
  __tsan_destroy_fiber(inside_tsan_);
#endif
}

void Fiber::Begin(unsigned low, unsigned high) {
  auto* const self = reinterpret_cast<Fiber*>(std::uintptr_t{high} << 32 | low);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(nullptr, &self->outside_stack_, &self->outside_bytes_);
#endif
  self->body_();
  std::abort();  // there is nowhere to return to
}

void Fiber::Enter() {
#ifdef __SANITIZE_ADDRESS__
  void* frames = nullptr;
  __sanitizer_start_switch_fiber(&frames, stack_.get(), kStackBytes);
#endif
#ifdef __SANITIZE_THREAD__
  outside_tsan_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(inside_tsan_, 0);
#endif
  ::swapcontext(&outside_, &inside_);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(frames, nullptr, nullptr);
#endif
}

void Fiber::Leave() {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&inside_frames_, outside_stack_, outside_bytes_);
#endif
#ifdef __SANITIZE_THREAD__
  __tsan_switch_to_fiber(outside_tsan_, 0);
#endif
  ::swapcontext(&inside_, &outside_);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(inside_frames_, &outside_stack_, &outside_bytes_);
#endif
}

}  // namespace simulated_cuda
