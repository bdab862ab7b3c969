// Where an engine's captured buffers are: memory of one kind, the host's or a device's, and a commit's work on it, in
// its own order. Host memory is worked on at once, a device on the stream on which layers are processed. Committers,
// the staged copy and the undo log know only this.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "engine_side/reload/layout/kernel_layout.h"
#include "layercast/captured_buffer.h"
#include "layercast/memory.h"
#include "src/base/digest/tensor_digests.h"
#include "src/base/memory/buffer_for.h"
#include "src/base/threads/worker_pool.h"

namespace layercast {

class DeviceWork;

// Resource; one thread only, but Copy, Scatter, Zero, Save and Restore may be called by several at once for pieces that
// do not overlap. What work reads must stay as it is until the work is done.
class Place {
 public:
  // Value; borrows.
  struct Memory {
    MemoryResource& kept;   // for what is kept here beside the live weights
    MemoryResource& log;    // host memory that Copy, Save and Restore reach
    MemoryResource& layer;  // for what is freed after each layer, and may be freed before work on it is done
  };

  Place(Device::Kind kind, const Memory& memory) : kind_(kind), memory_(memory) {}
  virtual ~Place() = default;

  Device::Kind kind() const { return kind_; }
  bool Holds(const CapturedBuffer& buffer) const { return buffer.device.kind == kind_; }
  // Whether work is done when a call returns. If not, it is done in the order of the calls, and Wait waits for it.
  bool works_at_once() const { return kind_ == Device::Kind::kHost; }
  const Memory& memory() const { return memory_; }
  // Takes memory for work here. If the host has too little, the error says what for; a device's errors say which
  // device.
  Buffer Take(const std::string& what, MemoryResource& memory, std::size_t bytes) const {
    return works_at_once() ? BufferFor(what, memory, bytes) : Buffer(memory, bytes);
  }

  // Copies between places here, or between here and the log.
  virtual void Copy(const std::byte* from, std::byte* to, std::size_t bytes) = 0;
  // Writes a buffer's elements. `packed` has all of them, row-major, whatever the buffer's strides.
  virtual void Scatter(std::span<const std::byte> packed, const CapturedBuffer& to) = 0;
  virtual void Zero(const CapturedBuffer& buffer) = 0;
  // Copies a buffer's elements, row-major, to the log, and from there back.
  virtual void Save(const CapturedBuffer& buffer, std::span<std::byte> log) = 0;
  virtual void Restore(std::span<const std::byte> log, const CapturedBuffer& buffer) = 0;
  // For tensors that lie here.
  virtual std::unique_ptr<TensorDigests> BeginDigests() = 0;
  // Throws what went wrong with the work.
  virtual void Wait() = 0;

 private:
  const Device::Kind kind_;
  const Memory memory_;
};

// What they borrow must outlive them. In host memory, the log is kept as well.
std::unique_ptr<Place> MakeHostPlace(WorkerPool& pool, MemoryResource& kept, MemoryResource& layer);
std::unique_ptr<Place> MakeDevicePlace(DeviceWork& work);

}  // namespace layercast
