// Sealed memfds: made and written by the publisher, mapped read-only by receivers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "src/base/unique_fd.h"

namespace layercast::shm_channel {

// A mapping of a whole memfd. Resource; move-only.
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

// A memfd of the publisher, which can be written through this mapping only. Resource.
struct Memfd {
  UniqueFd fd;
  Mapping memory;
};

// Makes a sealed memfd of `size` zero bytes, none of them faulted in yet. Throws kResourceExhausted.
Memfd MakeMemfd(const char* name, std::size_t size);

// Identifies the file that a descriptor refers to, for as long as somebody keeps the file open or mapped. Value.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  auto operator<=>(const FileIdentity&) const = default;
};

// Checks and identifies a descriptor that came from a peer. Throws kCorrupt unless it is of a regular file that can
// neither shrink nor grow.
FileIdentity IdentityOf(const UniqueFd& fd);
// Maps the whole of a file that IdentityOf has accepted, read-only; nothing is faulted in. Throws kCorrupt,
// kResourceExhausted.
Mapping MapReadOnly(const UniqueFd& fd);

}  // namespace layercast::shm_channel
