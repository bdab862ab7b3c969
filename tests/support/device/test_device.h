// A device for tests of what runs on one: a real one, or one that this program plays. The same suites run on both.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "engine_side/reload/device/reload_stream.h"
#include "src/tensor/region.h"

namespace layercast::testing {

// Resource; one thread only. It outlives its streams.
class TestDevice {
 public:
  virtual ~TestDevice() = default;
  virtual Device device() const = 0;
  // Memory of an engine, for as long as the device lives.
  virtual std::byte* Allocate(std::size_t bytes) = 0;
  // Of streams for an engine, and so for a publisher too, which takes them as the DeviceStream that they are.
  virtual OpenReloadStream Opener() = 0;
  // Copies bytes, packed, as somebody else would, a channel: past every stream, from and to its memory or the host's.
  // Done when it returns.
  virtual void Carry(const RegionView& from, std::byte* to) = 0;

  // Blocks of device and of pinned memory that its streams were asked for, so far.
  virtual std::size_t allocations() const = 0;
  // The most bytes of device memory that its streams had given out at once, so far.
  virtual std::size_t peak_bytes() const = 0;
  // Times that a host thread had to wait for what was not done yet.
  virtual std::size_t waits() const = 0;
  // Bytes that its streams were asked to copy from device to pinned memory, so far.
  virtual std::size_t bytes_brought() const = 0;
};

// Null: there is none here, and `why` says so.
std::unique_ptr<TestDevice> MakeTestDevice(std::string& why);

}  // namespace layercast::testing
