// A fake of CUDA's sharing of memory and events between processes, on the device of FakeChannelDevice. A segment is a
// sealed memfd, which others map read-only, and an event is a pair of counters in a memfd. What is queued runs when
// somebody asks for it, so that a missing question shows in the bytes.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "src/transport/cuda_ipc/segments/driver.h"
#include "tests/support/fakes/fake_channel_device.h"

namespace layercast::test {

// Thread-safe.
class FakeIpc final : public cuda_ipc_channel::IpcDriver {
 public:
  explicit FakeIpc(std::shared_ptr<FakeChannelDevice> device) : device_(std::move(device)) {}

  // What of CUDA is available.
  std::atomic<bool> has_vmm{true};
  std::atomic<bool> has_legacy{true};
  std::atomic<bool> has_events{true};
  std::atomic<bool> opens_events{true};
  std::atomic<bool> opens_segments{true};  // false: as if they were of a GPU that this process does not see
  std::atomic<bool> strict{false};         // as CUDA: a process opens nothing of its own but VMM
  std::atomic<std::size_t> bytes_left{std::size_t{1} << 40};
  std::atomic<int> mapped{0};  // mappings so far
  std::atomic<int> live_mappings{0};
  std::atomic<int> asked{0};  // how often it was asked whether an event is reached

  bool opens_its_own() const override { return !strict; }
  std::unique_ptr<cuda_ipc_channel::OwnSegment> MakeSegment(std::size_t bytes) override;
  std::unique_ptr<const cuda_ipc_channel::MappedSegment> Map(cuda_ipc_channel::SegmentKey key,
                                                             std::size_t bytes) override;
  std::unique_ptr<cuda_ipc_channel::IpcEvent> MakeEvent() override;
  std::unique_ptr<cuda_ipc_channel::IpcEvent> OpenEvent(const cuda_ipc_channel::IpcHandle& handle) override;

 private:
  const std::shared_ptr<FakeChannelDevice> device_;  // second owner: the channel's parts
};

}  // namespace layercast::test
