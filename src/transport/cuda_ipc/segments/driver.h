// What the cuda_ipc channel needs of CUDA beside copies (device/channel_device.h): memory and events that another
// process can open. cuda_driver.h implements it by CUDA; tests simulate it with memfds.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "src/base/unique_fd.h"
#include "src/device/channel_device.h"

namespace layercast::cuda_ipc_channel {

using IpcHandle = std::array<std::byte, 64>;  // of a legacy allocation or an event, as CUDA writes it

// What another process needs to map a segment. Resource.
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
  // Whether other processes' mappings of the segment stay valid when this is destroyed. If not, it must outlive them.
  virtual bool kept_by_mappings() const = 0;
};

// A publisher's segment, mapped by a receiver, which only reads it. Resource.
class MappedSegment {
 public:
  virtual ~MappedSegment() = default;
  virtual const std::byte* base() const = 0;
  virtual std::size_t size() const = 0;
};

// A place in the publisher's stream that other processes can ask about. Resource; one thread at a time.
class IpcEvent {
 public:
  virtual ~IpcEvent() = default;
  virtual IpcHandle handle() const = 0;
  // Records the place behind all that is queued in the stream now.
  virtual void Record(CopyStream& stream) = 0;
  // Whether the publisher's stream has got to the place that was recorded last. Never waits.
  virtual bool Reached() = 0;
};

// Makes and opens what processes share of one device. Thread-safe; outlives what it makes. All functions throw
// kResourceExhausted, kUnavailable, or kUnsupported (CUDA cannot do that here), with CUDA's words.
class IpcDriver {
 public:
  virtual ~IpcDriver() = default;
  // Whether the process that made a legacy allocation or an event may open it too. CUDA's may not.
  virtual bool opens_its_own() const = 0;
  // Makes a segment of at least `bytes`: by VMM, or by a legacy allocation where there is no VMM.
  virtual std::unique_ptr<OwnSegment> MakeSegment(std::size_t bytes) = 0;
  // Maps a segment. `key` and `bytes` come from a peer: throws kUnsupported if this device cannot open the segment, and
  // kCorrupt if it is not of that size.
  virtual std::unique_ptr<const MappedSegment> Map(SegmentKey key, std::size_t bytes) = 0;
  virtual std::unique_ptr<IpcEvent> MakeEvent() = 0;
  virtual std::unique_ptr<IpcEvent> OpenEvent(const IpcHandle& handle) = 0;
};

}  // namespace layercast::cuda_ipc_channel
