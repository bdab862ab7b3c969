// The engine's own weight memory: the addresses that its CUDA graphs captured. Layercast writes there and nowhere
// else, in one stage (engine_side/reload/commit), and never moves one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/export.h"
#include "layercast/tensor.h"
#include "layercast/version.h"

namespace layercast {

class CapturedOnDevice;
class DeviceStream;  // engine_side/device/device_stream.h

// One buffer, as the engine describes it. Value; the memory is borrowed.
struct LAYERCAST_PUBLIC CapturedBuffer {
  std::string name;  // kernel name: "model.layers.0.self_attn.qkv_proj.weight_scale"
  std::byte* address = nullptr;
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<std::int64_t> strides{};  // elements, one per dimension; empty: contiguous, row-major
  Device device{};

  bool operator==(const CapturedBuffer&) const = default;
};

// The table of them, fixed for the life of the engine. Reading is thread-safe; writing is the commit stage's alone.
class LAYERCAST_PUBLIC CapturedBuffers {
 public:
  // `current` is called around every commit and must return the same table, in any order. An engine whose buffers could
  // move (a tensor's data_ptr) proves by it that they did not. Without it the adopted addresses are taken on trust.
  // `open_stream`: how the buffers' device is reached; null: by CUDA.
  // Buffers on one device and in host memory may be mixed, for an engine that offloads some layers.
  // Throws kInvalidArgument, naming the buffer, on a repeated name, a null address, strides that do not match the
  // shape, a negative stride, strided elements of less than a byte, elements or buffers that overlap, buffers on two
  // devices, or a buffer on a device with more than four irregular strides. Throws kUnsupported, saying why, if there
  // is no such device.
  static CapturedBuffers Adopt(
      std::vector<CapturedBuffer> buffers, std::function<std::vector<CapturedBuffer>()> current = nullptr,
      std::function<std::shared_ptr<DeviceStream>(const Device& device)> open_stream = nullptr);

  std::span<const CapturedBuffer> buffers() const { return buffers_; }  // sorted by name
  const CapturedBuffer* Find(std::string_view name) const;              // null: none of that name

  // Digest of names, devices, addresses, dtypes, shapes and strides: equal before and after every commit.
  Digest TableDigest() const;
  // Throws kFailedPrecondition naming the buffers that the engine has moved since it handed them over.
  void CheckUnmoved() const;

  // The bytes that are served now, read back: row-major, whatever the strides. Host memory.
  std::vector<std::byte> Read(const CapturedBuffer& buffer) const;
  // Digest of every buffer's name and the digest of its bytes as Read gives them, in name order.
  Digest ServedDigest() const;

  // The same memory, with each buffer described anew by `view`, which must stay inside the buffer that it is given and
  // keep its name. What `current` returns is seen through `view` as well.
  CapturedBuffers SeenAs(std::function<CapturedBuffer(CapturedBuffer)> view) const;

  // A new stream of the buffers' device; null: all of them are host memory.
  std::shared_ptr<DeviceStream> OpenStream() const;

 private:
  explicit CapturedBuffers(std::vector<CapturedBuffer> buffers) : buffers_(std::move(buffers)) {}

  std::vector<CapturedBuffer> buffers_;
  std::function<std::vector<CapturedBuffer>()> current_;
  std::shared_ptr<CapturedOnDevice> on_device_;  // null: none is; the other owners are copies of the table
};

}  // namespace layercast
