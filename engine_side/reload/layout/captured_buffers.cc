#include "layercast/captured_buffers.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "engine_side/reload/layout/captured_on_device.h"
#include "engine_side/reload/layout/served_digest.h"
#include "engine_side/reload/layout/strided.h"
#include "layercast/error.h"
#include "src/base/digest/digest.h"

namespace layercast {
namespace {

[[noreturn]] void Refuse(const CapturedBuffer& buffer, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, "captured buffer '" + buffer.name + "': " + what);
}

// Checks that elements do not lie over each other: each stride must reach beyond everything that smaller ones reach.
// This also refuses elements of two dimensions that interleave, as in [2, 3] with strides [3, 2]; nobody lays out
// weights so.
void CheckApart(const CapturedBuffer& buffer) {
  std::vector<std::pair<std::int64_t, std::int64_t>> steps;  // stride, how many
  for (std::size_t d = 0; d < buffer.shape.size(); ++d) {
    if (buffer.shape[d] > 1) steps.emplace_back(buffer.strides[d], buffer.shape[d] - 1);
  }
  std::ranges::sort(steps);
  const std::int64_t most = std::numeric_limits<std::int64_t>::max() / BitsPerElement(buffer.dtype);
  std::int64_t last = 0;  // index of the farthest element so far
  for (const auto& [stride, count] : steps) {
    if (stride <= last) {
      Refuse(buffer, "strides " + ToString(buffer.strides) + " lay elements of shape " + ToString(buffer.shape) +
                         " over each other");
    }
    if (stride > (most - last) / count) {
      Refuse(buffer, "strides " + ToString(buffer.strides) + " reach beyond any memory");
    }
    last += stride * count;
  }
}

void CheckOne(const CapturedBuffer& buffer) {
  const std::int64_t bytes = NumBytes(buffer.dtype, buffer.shape);
  if (buffer.address == nullptr && bytes != 0) Refuse(buffer, "its address is null");
  if (buffer.strides.empty()) return;
  if (buffer.strides.size() != buffer.shape.size()) {
    Refuse(buffer, "expected " + std::to_string(buffer.shape.size()) + " strides for shape " + ToString(buffer.shape) +
                       ", got " + std::to_string(buffer.strides.size()));
  }
  if (std::any_of(buffer.strides.begin(), buffer.strides.end(), [](std::int64_t stride) { return stride < 0; })) {
    Refuse(buffer, "strides " + ToString(buffer.strides) + " go backwards");
  }
  if (BitsPerElement(buffer.dtype) % 8 != 0) {
    Refuse(buffer, "elements of " + std::string(Name(buffer.dtype)) + " cannot be strided");
  }
  if (bytes != 0) CheckApart(buffer);
}

// Buffers are sorted by device first, because only addresses on one device can be compared.
void CheckNoOverlap(std::vector<const CapturedBuffer*> buffers) {
  std::erase_if(buffers, [](const CapturedBuffer* buffer) { return ExtentBytes(*buffer) == 0; });
  std::ranges::sort(buffers, {}, [](const CapturedBuffer* buffer) {
    return std::tuple(buffer->device.kind, buffer->device.index, buffer->address);
  });
  for (std::size_t i = 1; i < buffers.size(); ++i) {
    const CapturedBuffer& before = *buffers[i - 1];
    if (before.device == buffers[i]->device && before.address + ExtentBytes(before) > buffers[i]->address) {
      Refuse(*buffers[i], "its bytes overlap those of '" + before.name + "', or lie between them");
    }
  }
}

// The device that some of the buffers are on. Empty if all are in host memory.
std::optional<Device> DeviceOf(std::span<const CapturedBuffer> buffers) {
  const CapturedBuffer* first = nullptr;
  for (const CapturedBuffer& buffer : buffers) {
    if (!IsOnDevice(buffer)) continue;
    if (first == nullptr) first = &buffer;
    if (buffer.device != first->device) {
      Refuse(buffer, "it is on CUDA device " + std::to_string(buffer.device.index) + ", and '" + first->name +
                         "' on device " + std::to_string(first->device.index) + ": expected one device for a rank");
    }
    if (!WalkOver(buffer)) Refuse(buffer, "strides " + ToString(buffer.strides) + " are too irregular for a device");
  }
  return first == nullptr ? std::nullopt : std::optional(first->device);
}

template <typename T>
void Append(const T& value, std::vector<std::byte>& out) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), bytes, bytes + sizeof(T));
}

void AppendDescription(const CapturedBuffer& buffer, std::vector<std::byte>& out) {
  Append(buffer.name.size(), out);
  for (const char c : buffer.name) out.push_back(static_cast<std::byte>(c));
  Append(buffer.address, out);
  Append(buffer.dtype, out);
  Append(buffer.device.kind, out);
  Append(buffer.device.index, out);
  Append(buffer.shape.size(), out);
  for (const std::int64_t dim : buffer.shape) Append(dim, out);
  for (const std::int64_t stride : buffer.strides) Append(stride, out);
}

bool ByName(const CapturedBuffer& a, const CapturedBuffer& b) { return a.name < b.name; }

}  // namespace

CapturedBuffers CapturedBuffers::Adopt(std::vector<CapturedBuffer> buffers,
                                       std::function<std::vector<CapturedBuffer>()> current,
                                       OpenReloadStream open_stream) {
  std::sort(buffers.begin(), buffers.end(), ByName);
  std::vector<const CapturedBuffer*> pointers;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    CheckOne(buffers[i]);
    if (i > 0 && buffers[i].name == buffers[i - 1].name) Refuse(buffers[i], "it is named twice");
    pointers.push_back(&buffers[i]);
  }
  CheckNoOverlap(std::move(pointers));
  const std::optional<Device> device = DeviceOf(buffers);
  CapturedBuffers table(std::move(buffers));
  table.current_ = std::move(current);
  if (device) {
    table.on_device_ =
        std::make_shared<CapturedOnDevice>(open_stream ? std::move(open_stream) : OpenCudaReloadStream, *device);
  }
  return table;
}

CapturedBuffers CapturedBuffers::SeenAs(std::function<CapturedBuffer(CapturedBuffer)> view) const {
  CapturedBuffers seen = *this;
  std::ranges::transform(seen.buffers_, seen.buffers_.begin(), view);
  if (current_) {
    seen.current_ = [view = std::move(view), current = current_] {
      std::vector<CapturedBuffer> now = current();
      std::ranges::transform(now, now.begin(), view);
      return now;
    };
  }
  return seen;
}

const CapturedBuffer* CapturedBuffers::Find(std::string_view name) const {
  const auto found = std::lower_bound(buffers_.begin(), buffers_.end(), name,
                                      [](const CapturedBuffer& buffer, std::string_view n) { return buffer.name < n; });
  return found != buffers_.end() && found->name == name ? &*found : nullptr;
}

Digest CapturedBuffers::TableDigest() const {
  std::vector<std::byte> description;
  for (const CapturedBuffer& buffer : buffers_) AppendDescription(buffer, description);
  return DigestOf(description);
}

void CapturedBuffers::CheckUnmoved() const {
  if (!current_) return;
  std::vector<CapturedBuffer> now = current_();
  std::sort(now.begin(), now.end(), ByName);
  std::string moved;
  for (const CapturedBuffer& buffer : buffers_) {
    const auto found = std::lower_bound(now.begin(), now.end(), buffer, ByName);
    if (found == now.end() || !(*found == buffer)) moved += (moved.empty() ? "'" : ", '") + buffer.name + "'";
  }
  if (moved.empty() && now.size() == buffers_.size()) return;
  throw Error(ErrorCode::kFailedPrecondition,
              "captured buffers must never move, but the engine now has other addresses, shapes or strides for " +
                  (moved.empty() ? "buffers that it never handed over" : moved));
}

std::vector<std::byte> CapturedBuffers::Read(const CapturedBuffer& buffer) const {
  std::vector<std::byte> bytes(static_cast<std::size_t>(NumBytes(buffer.dtype, buffer.shape)));
  if (IsOnDevice(buffer)) {
    on_device_->Read(buffer, bytes);
  } else {
    ReadCaptured(buffer, bytes);
  }
  return bytes;
}

std::shared_ptr<ReloadStream> CapturedBuffers::OpenStream() const {
  return on_device_ == nullptr ? nullptr : on_device_->OpenStream();
}

Digest CapturedBuffers::ServedDigest() const {
  std::vector<const CapturedBuffer*> on_device;
  std::vector<NamedDigest> tensors;
  Digester digester;
  for (const CapturedBuffer& buffer : buffers_) {
    if (IsOnDevice(buffer)) {
      on_device.push_back(&buffer);
      continue;
    }
    digester.Reset();
    ForEachRun(buffer, [&](const std::byte* address, std::size_t /*offset*/, std::size_t count) {
      digester.Update({address, count});
    });
    tensors.push_back({buffer.name, digester.Finish()});
  }
  std::vector<Digest> digests(on_device.size());
  if (!on_device.empty()) on_device_->Digests(on_device, digests);
  for (std::size_t i = 0; i < on_device.size(); ++i) tensors.push_back({on_device[i]->name, digests[i]});
  return CombineDigests(std::move(tensors));
}

}  // namespace layercast
