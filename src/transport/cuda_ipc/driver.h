// What the cuda_ipc channel asks of CUDA beside copies (device/channel_device.h): memory and events that another
// process opens. CUDA's in cuda_driver.h; tests play one with memfds.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "src/base/unique_fd.h"
#include "src/transport/device/channel_device.h"

namespace layercast::cuda_ipc_channel {

using IpcHandle = std::array<std::byte, 64>;  // of a legacy allocation or an event, as CUDA writes it

// What another process maps a segment by.
struct SegmentKey {
  UniqueFd descriptor;  // of VMM memory; none: the handle is a legacy allocation's
  IpcHandle handle{};
};

// The publisher's device memory that others map. Resource.
class OwnSegment {
 public:
  virtual ~OwnSegment() = default;
  virtual std::byte* base() const = 0;
  virtual std::size_t size() const = 0;
  virtual SegmentKey Export() const = 0;
  // Whether what others have mapped stays whole when this is gone; else it must not go before they are.
  virtual bool kept_by_mappings() const = 0;
};

// A publisher's segment, mapped by a receiver, which only reads it. Resource.
class MappedSegment {
 public:
  virtual ~MappedSegment() = default;
  virtual const std::byte* base() const = 0;
  virtual std::size_t size() const = 0;
};

// A place in the publisher's stream, which other processes ask about. Resource; one thread at a time.
class IpcEvent {
 public:
  virtual ~IpcEvent() = default;
  virtual IpcHandle handle() const = 0;
  // Behind what is queued in the stream now.
  virtual void Record(CopyStream& stream) = 0;
  // Whether the publisher's stream has got to what was recorded last. Nothing waits.
  virtual bool Reached() = 0;
};

// What one device shares. Thread-safe; outlives what it makes. Everything throws kResourceExhausted, kUnavailable, or
// kUnsupported (CUDA cannot do that here) with CUDA's words.
class IpcDriver {
 public:
  virtual ~IpcDriver() = default;
  // Whether the process that made a legacy allocation or an event may open it too. CUDA's may not.
  virtual bool opens_its_own() const = 0;
  // By VMM, or else by a legacy allocation. At least so many bytes.
  virtual std::unique_ptr<OwnSegment> MakeSegment(std::size_t bytes) = 0;
  // What comes from a peer: throws kUnsupported where this device cannot open it, kCorrupt where it is no segment of
  // that size.
  virtual std::unique_ptr<const MappedSegment> Map(SegmentKey key, std::size_t bytes) = 0;
  virtual std::unique_ptr<IpcEvent> MakeEvent() = 0;
  virtual std::unique_ptr<IpcEvent> OpenEvent(const IpcHandle& handle) = 0;
};

}  // namespace layercast::cuda_ipc_channel
