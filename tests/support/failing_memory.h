// Memory of which one allocation fails. Header-only.
#pragma once

#include <cstddef>
#include <new>

#include "layercast/memory.h"
#include "src/base/exhausted.h"

namespace layercast::testing {

// Resource; one thread at a time.
class FailingMemory final : public MemoryResource {
 public:
  explicit FailingMemory(MemoryResource& upstream) : upstream_(upstream) {}

  // Of the allocations from now on, the one after the first `before` fails: as Layercast's own memory does, or
  // `as_cpp_does`.
  void FailAfter(std::size_t before, bool as_cpp_does = false) {
    left_ = before + 1;
    as_cpp_does_ = as_cpp_does;
  }
  // Ends that, and says whether one has failed.
  bool Stop() {
    const bool failed = left_ == 0;
    left_ = kNever;
    return failed;
  }

  std::byte* Allocate(std::size_t bytes) override {
    if (left_ != kNever && left_ != 0 && --left_ == 0) {
      if (as_cpp_does_) throw std::bad_alloc();
      throw OutOfMemory("memory of a test", bytes);
    }
    return upstream_.Allocate(bytes);
  }
  void Deallocate(std::byte* address, std::size_t bytes) noexcept override { upstream_.Deallocate(address, bytes); }

 private:
  static constexpr std::size_t kNever = ~std::size_t{0};

  MemoryResource& upstream_;
  std::size_t left_ = kNever;  // allocations, the failing one among them; 0: it has failed
  bool as_cpp_does_ = false;
};

}  // namespace layercast::testing
