#include "engine_side/reload/captured_on_device.h"

#include <algorithm>
#include <cstring>

#include "engine_side/device/device_digests.h"
#include "engine_side/device/walks.h"
#include "src/base/check.h"

namespace layercast {
namespace {

std::size_t ReadSize(const CapturedBuffer& buffer) {
  return static_cast<std::size_t>(NumBytes(buffer.dtype, buffer.shape));
}

}  // namespace

void CapturedOnDevice::Read(const CapturedBuffer& buffer, std::span<std::byte> bytes) {
  LAYERCAST_CHECK(bytes.size() == ReadSize(buffer));
  const std::scoped_lock lock(mutex_);
  std::byte* to = bytes.data();
  const auto take = [&to](std::span<const std::byte> part) { to = std::ranges::copy(part, to).out; };
  try {
    if (IsPacked(buffer)) {
      download_.Read(buffer.address, bytes.size(), take);
    } else {
      download_.Read(buffer.dtype, buffer.address, WalkOver(buffer).value(), take);
    }
    download_.Finish();
  } catch (...) {
    download_.Drop();  // refers to `to`
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
      on_device.Add(buffer.dtype, buffer.address, WalkOver(buffer).value(), digests[i]);
    }
  }
  on_device.Finish();
}

}  // namespace layercast
