// The interfaces under one-sided reads, implemented by UCX over RDMA (ucx_one_sided.h) and simulated in tests. The
// publisher registers memory, once for all receivers. A receiver that has its key, and is connected to the publisher,
// reads it without the publisher's process doing anything.
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

// Where receivers can read memory of the publisher. Value.
struct RemotePlace {
  std::uint64_t address = 0;
  std::vector<std::byte> key;
};

// Memory that can be read by its key for as long as this object lives. Resource; immutable; thread-safe.
class RegisteredMemory {
 public:
  virtual ~RegisteredMemory() = default;
  virtual const std::vector<std::byte>& key() const = 0;
};

// The publisher's end of the connection by which one receiver reads. Resource; one thread only.
class ReadTarget {
 public:
  virtual ~ReadTarget() = default;  // after it this receiver reads nothing any more
  virtual std::vector<std::byte> Address() const = 0;
  // Needed for the receiver to connect; not for its reads. True when something moved.
  virtual bool Progress() = 0;
  virtual bool Arm() = 0;  // whether a thread may sleep until fd() is readable
  virtual int fd() const = 0;
};

// The publisher's side of one-sided reads, for all its receivers. Resource; thread-safe. What it makes may outlive it.
class RemoteMemory {
 public:
  virtual ~RemoteMemory() = default;
  // Null: any host memory can be registered. Else only memory from this arena can, which lives as long as this object.
  virtual MemoryResource* arena() { return nullptr; }
  // Costs the time that it takes to pin the memory. Throws kUnsupported, saying why that is not possible.
  virtual std::unique_ptr<RegisteredMemory> Register(std::span<const std::byte> memory) = 0;
  // Makes the target of one receiver. Throws kUnavailable.
  virtual std::unique_ptr<ReadTarget> MakeTarget() = 0;
};

// A key that the reading library has opened. Resource; destroyed before the RemoteReads that opened it, and after the
// reads that use it.
class RemoteKey {
 public:
  virtual ~RemoteKey() = default;
};

// The receiver's side of one-sided reads: one connection to one publisher. Resource; one thread only.
class RemoteReads {
 public:
  virtual ~RemoteReads() = default;
  // Connects to the target at `address`, which the library may trust because its sender has been authenticated. Throws
  // kUnavailable and kUnsupported.
  virtual void Connect(std::span<const std::byte> address) = 0;
  virtual std::string lane() const = 0;  // what it reads by: "rc_mlx5/mlx5_0:1"
  // Throws kCorrupt if this is not a key, as far as that can be told.
  virtual std::unique_ptr<RemoteKey> Open(std::span<const std::byte> key) = 0;
  // Begins to read what lies at `address` of the publisher's memory. True: it has landed already. Else TakeLanded
  // returns `ticket` once it has landed, and failure() tells if it fails.
  virtual bool Read(const RemoteKey& key, std::uint64_t address, std::span<std::byte> destination,
                    std::uint64_t ticket) = 0;
  virtual std::optional<std::uint64_t> TakeLanded() = 0;
  virtual bool Progress() = 0;  // true when something moved
  virtual bool Arm() = 0;       // whether a thread may sleep until fd() is readable
  virtual int fd() const = 0;
  // What ended the connection; empty as long as it has not ended.
  virtual const std::string& failure() const = 0;
  // Gives up what is under way: after it no destination is written any more. Idempotent.
  virtual void Abandon() noexcept = 0;
};

// Makes both sides of one-sided reads. Immutable; thread-safe.
class OneSided {
 public:
  virtual ~OneSided() = default;
  // Whether this process has what one-sided reads need; found out once.
  virtual bool Here() const = 0;
  // Both throw kUnavailable and kUnsupported.
  virtual std::unique_ptr<RemoteMemory> MakeMemory() const = 0;
  virtual std::unique_ptr<RemoteReads> MakeReads() const = 0;
};

}  // namespace layercast::ucx_channel
