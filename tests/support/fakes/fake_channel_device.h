// A fake device in host memory. Its streams do nothing before somebody asks how far they are, so that a missing
// question shows in the bytes. Copies go only to and from memory that a device could reach by itself.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "src/device/channel_device.h"

namespace layercast::test {

// Host memory whose addresses are known, and which claims to be a device's. Thread-safe.
class KnownMemory final : public MemoryResource {
 public:
  explicit KnownMemory(Device device = {}) : device_(device) {}
  Device device() const override { return device_; }
  std::byte* Allocate(std::size_t bytes) override;
  void Deallocate(std::byte* address, std::size_t bytes) noexcept override;
  bool Has(const std::byte* address, std::size_t bytes) const;
  // Adds memory that somebody else owns.
  void Know(const std::byte* address, std::size_t bytes);
  void Forget(const std::byte* address);

 private:
  const Device device_;
  HostMemory host_;
  mutable std::mutex mutex_;
  std::map<const std::byte*, std::size_t> blocks_;  // guarded by mutex_
};

// The device interface of a channel. By default every end that asks for it has a device of its own. Thread-safe.
class FakeChannelDevice final : public ChannelDevice {
 public:
  FakeChannelDevice() = default;
  // Every end is on this device.
  explicit FakeChannelDevice(const DeviceUuid& uuid) : only_(std::make_unique<DeviceUuid>(uuid)) {}

  DeviceUuid uuid() const override;
  std::unique_ptr<CopyStream> MakeStream() override;
  MemoryResource& device_memory() override { return device_; }
  MemoryResource& pinned_memory() override { return pinned_; }
  bool Reaches(const std::byte* address) const override {
    ++questions;
    return Has(address);
  }
  bool Has(const std::byte* address) const { return device_.Has(address, 1) || pinned_.Has(address, 1); }
  KnownMemory& known() { return device_; }
  bool IsDeviceMemory(const std::byte* address, std::size_t bytes) const { return device_.Has(address, bytes); }
  void OnDevice(const std::function<void()>& call) override;
  // The calling thread's device. Null if none was set, in which case CUDA would take its first.
  static const FakeChannelDevice* Current();

  std::atomic<bool> held{false};  // nothing that is queued in a stream runs, until it is false again
  // How often the device was asked so far.
  mutable std::atomic<std::uint64_t> questions{0};  // whether it reaches an address
  mutable std::atomic<std::uint64_t> copies{0};
  mutable std::atomic<std::uint64_t> bytes_copied{0};

 private:
  std::unique_ptr<DeviceUuid> only_;
  KnownMemory device_{{Device::Kind::kCuda, 1}};
  KnownMemory pinned_;
};

// One thread only.
class FakeStream final : public CopyStream {
 public:
  // Does what it can without waiting, and returns true when it is done.
  using Operation = std::function<bool()>;

  explicit FakeStream(const FakeChannelDevice& device) : device_(device) {}
  ~FakeStream() override;  // ends the process if something still waits for a peer: a real one hangs

  static FakeStream& Of(CUstream_st* handle) { return *reinterpret_cast<FakeStream*>(handle); }
  const FakeChannelDevice& device() const { return device_; }
  void Queue(Operation operation) { queued_.push_back(std::move(operation)); }

  void Copy(std::byte* to, const std::byte* from, std::size_t bytes) override;
  std::uint64_t Mark() override { return done_ + queued_.size(); }
  bool Reached(std::uint64_t mark) override;
  CUstream_st* handle() const override { return reinterpret_cast<CUstream_st*>(const_cast<FakeStream*>(this)); }

 private:
  void CopyPitched(std::byte* to, const RegionView& from) override;
  void QueueCopy(std::byte* to, const RegionView& from);

  const FakeChannelDevice& device_;
  std::deque<Operation> queued_;
  std::uint64_t done_ = 0;
};

}  // namespace layercast::test
