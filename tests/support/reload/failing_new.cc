#include "tests/support/reload/failing_new.h"

#include <cstdlib>
#include <new>

namespace {

constexpr std::size_t kNever = ~std::size_t{0};
thread_local std::size_t left = kNever;  // allocations, the failing one among them; 0: it has failed

void* Allocate(std::size_t bytes, std::size_t alignment) {
  if (left != kNever && left != 0 && --left == 0) return nullptr;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  return alignment <= alignof(std::max_align_t) ? std::malloc(bytes == 0 ? 1 : bytes)
                                                : std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
}

void* OrThrow(void* address) {
  if (address == nullptr) throw std::bad_alloc();
  return address;
}

}  // namespace

void* operator new(std::size_t bytes) { return OrThrow(Allocate(bytes, 1)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return OrThrow(Allocate(bytes, static_cast<std::size_t>(alignment)));
}
void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept { return Allocate(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t& /*tag*/) noexcept {
  return Allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* address) noexcept { std::free(address); }
void operator delete(void* address, std::size_t /*bytes*/) noexcept { std::free(address); }
void operator delete(void* address, std::align_val_t /*alignment*/) noexcept { std::free(address); }
void operator delete(void* address, std::size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  std::free(address);
}
void operator delete(void* address, const std::nothrow_t& /*tag*/) noexcept { std::free(address); }
void operator delete(void* address, std::align_val_t /*alignment*/, const std::nothrow_t& /*tag*/) noexcept {
  std::free(address);
}

namespace layercast::testing {

FailingNew::FailingNew(std::size_t before) { left = before + 1; }
FailingNew::~FailingNew() { left = kNever; }
bool FailingNew::failed() const { return left == 0; }

}  // namespace layercast::testing
