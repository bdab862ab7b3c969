// What one-sided reads stand on: UCX over RDMA (ucx_one_sided.h), or a library that tests play. The publisher registers
// memory, once for all receivers; who holds the key of it, and a way to the publisher, reads it without the publisher's
// doing anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "layercast/memory.h"

namespace layercast::ucx_channel {

// Where memory of the publisher lies for those who read it. Value.
struct RemotePlace {
  std::uint64_t address = 0;
  std::vector<std::byte> key;
};

// Memory that can be read by its key, until the end of its life. Immutable; thread-safe.
class RegisteredMemory {
 public:
  virtual ~RegisteredMemory() = default;
  virtual const std::vector<std::byte>& key() const = 0;
};

// The way of one receiver to the publisher's memory, at the publisher. One thread only.
class ReadTarget {
 public:
  virtual ~ReadTarget() = default;  // after it this receiver reads nothing any more
  virtual std::vector<std::byte> Address() const = 0;
  // Needed for the receiver to connect; not for its reads. True when something moved.
  virtual bool Progress() = 0;
  virtual bool Arm() = 0;  // whether a thread may sleep until fd() is readable
  virtual int fd() const = 0;
};

// The publisher's end. Thread-safe. What it makes may outlive it.
class RemoteMemory {
 public:
  virtual ~RemoteMemory() = default;
  // Null: any host memory can be registered. Else only what comes from here; it lives as long as this.
  virtual MemoryResource* arena() { return nullptr; }
  // Costs the time that it takes to pin the memory. Throws kUnsupported, saying why that is not possible.
  virtual std::unique_ptr<RegisteredMemory> Register(std::span<const std::byte> memory) = 0;
  // Throws kUnavailable.
  virtual std::unique_ptr<ReadTarget> MakeTarget() = 0;
};

// A key as the reading library has it. Dies before the RemoteReads that opened it, and after the reads by it.
class RemoteKey {
 public:
  virtual ~RemoteKey() = default;
};

// The receiver's end: one connection to one publisher. One thread only.
class RemoteReads {
 public:
  virtual ~RemoteReads() = default;
  // To the target at `address`, which the library may trust: whoever sent it has been authenticated. Throws
  // kUnavailable and kUnsupported.
  virtual void Connect(std::span<const std::byte> address) = 0;
  virtual std::string lane() const = 0;  // what it reads by: "rc_mlx5/mlx5_0:1"
  // Throws kCorrupt: not a key, as far as that can be told.
  virtual std::unique_ptr<RemoteKey> Open(std::span<const std::byte> key) = 0;
  // Reads what lies at `address` of the publisher's. True: it has landed already; else TakeLanded gives `ticket` when
  // it has. A read that fails is told by failure().
  virtual bool Read(const RemoteKey& key, std::uint64_t address, std::span<std::byte> destination,
                    std::uint64_t ticket) = 0;
  virtual std::optional<std::uint64_t> TakeLanded() = 0;
  virtual bool Progress() = 0;  // true when something moved
  virtual bool Arm() = 0;       // whether a thread may sleep until fd() is readable
  virtual int fd() const = 0;
  // What ended the connection, or empty.
  virtual const std::string& failure() const = 0;
  // Gives up what is under way: after it no destination is written any more. Idempotent.
  virtual void Abandon() noexcept = 0;
};

// Immutable; thread-safe.
class OneSided {
 public:
  virtual ~OneSided() = default;
  // Whether this process has what it takes; found out once.
  virtual bool Here() const = 0;
  // Both throw kUnavailable and kUnsupported.
  virtual std::unique_ptr<RemoteMemory> MakeMemory() const = 0;
  virtual std::unique_ptr<RemoteReads> MakeReads() const = 0;
};

}  // namespace layercast::ucx_channel
