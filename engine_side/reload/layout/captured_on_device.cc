#include "engine_side/reload/layout/captured_on_device.h"

#include <algorithm>
#include <cstring>

#include "engine_side/reload/layout/strided.h"
#include "src/base/check.h"
#include "src/device/device_digests.h"

namespace layercast {
namespace {

std::size_t ReadSize(const CapturedBuffer& buffer) {
  return static_cast<std::size_t>(NumBytes(buffer.dtype, buffer.shape));
}

}  // namespace

GatheredBytes CapturedOnDevice::Gathered(const CapturedBuffer& buffer) {
  const auto size = static_cast<std::size_t>(BitsPerElement(buffer.dtype)) / 8;
  const auto gather = [&stream = *stream_, &buffer, size, walk = WalkOver(buffer).value()](
                          std::size_t begin, std::size_t count, std::byte* to) {
    stream.Gather(buffer.dtype, buffer.address, walk, static_cast<std::int64_t>(begin / size),
                  static_cast<std::int64_t>(count / size), to);
  };
  return {.bytes = ReadSize(buffer), .unit = size, .gather = gather};
}

void CapturedOnDevice::Read(const CapturedBuffer& buffer, std::span<std::byte> bytes) {
  LAYERCAST_CHECK(bytes.size() == ReadSize(buffer));
  const std::scoped_lock lock(mutex_);
  std::byte* to = bytes.data();
  const auto take = [&to](std::span<const std::byte> part) { to = std::ranges::copy(part, to).out; };
  try {
    if (IsPacked(buffer)) {
      download_.Read(buffer.address, bytes.size(), take);
    } else {
      download_.Read(Gathered(buffer), take);
    }
    download_.Finish();
  } catch (...) {
    download_.Drop();  // what is under way refers to `to`
    throw;
  }
}

void CapturedOnDevice::Digests(std::span<const CapturedBuffer* const> buffers, std::span<Digest> digests) {
  const std::scoped_lock lock(mutex_);
  DeviceDigests on_device(*stream_, download_, scratch_);
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const CapturedBuffer& buffer = *buffers[i];
    if (IsPacked(buffer)) {
      on_device.Add(buffer.address, ReadSize(buffer), digests[i]);
    } else {
      on_device.Add(Gathered(buffer), digests[i]);
    }
  }
  on_device.Finish();
}

}  // namespace layercast
