#include <utility>

#include "tests/support/fakes/fake_channel_device.h"
#include "tests/support/fakes/fake_nccl.h"

namespace layercast::test {
namespace {

class OfChannels final : public FakeNcclDevices {
 public:
  const void* Current() const override { return FakeChannelDevice::Current(); }
  bool IsDeviceMemory(cudaStream_t stream, const std::byte* memory, std::size_t bytes) const override {
    return FakeStream::Of(stream).device().IsDeviceMemory(memory, bytes);
  }
  void Queue(cudaStream_t stream, FakeOperation operation) const override {
    FakeStream::Of(stream).Queue(std::move(operation));
  }
};

}  // namespace

const FakeNcclDevices& FakeChannelDevices() {
  static const OfChannels devices;
  return devices;
}

}  // namespace layercast::test
