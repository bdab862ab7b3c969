// Sealed memfds: made and written by the publisher, mapped read-only by receivers. Resources.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "src/base/unique_fd.h"

namespace layercast::shm_channel {

// A mapping of a whole memfd. Move-only.
class Mapping {
 public:
  Mapping() = default;
  Mapping(std::byte* base, std::size_t size) : base_(base), size_(size) {}
  Mapping(Mapping&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Mapping();
  std::byte* base() const { return base_; }
  std::size_t size() const { return size_; }

 private:
  std::byte* base_ = nullptr;
  std::size_t size_ = 0;
};

// The publisher's: writable through this mapping alone.
struct Memfd {
  UniqueFd fd;
  Mapping memory;
};

// `size` zero bytes, none of them faulted in yet; sealed. Throws kResourceExhausted.
Memfd MakeMemfd(const char* name, std::size_t size);

// Which file a descriptor is of, as long as somebody holds it.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  auto operator<=>(const FileIdentity&) const = default;
};

// Checks what came from a peer. Throws kCorrupt unless it is a regular file that can neither shrink nor grow.
FileIdentity IdentityOf(const UniqueFd& fd);
// Maps such a file read-only, whole; nothing is faulted in. Throws kCorrupt, kResourceExhausted.
Mapping MapReadOnly(const UniqueFd& fd);

}  // namespace layercast::shm_channel
