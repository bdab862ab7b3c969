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
  // `current` is asked again around every commit and must return the same table, in any order: an engine whose buffers
  // can move (a tensor's data_ptr) proves so that they did not. Without it the adopted addresses are taken on trust.
  // Throws kInvalidArgument, naming the buffer: a repeated name, a null address, strides that do not match the shape, a
  // negative stride, elements of less than a byte that are strided, elements or two buffers that overlap, buffers on
  // two devices, one on a device in more than four irregular strides. Buffers on a device and in host memory may be
  // mixed: an engine that keeps some layers in host memory. Throws kUnsupported, saying why, where there is no such
  // device. `open_stream`: how that device is reached; null: by CUDA.
  static CapturedBuffers Adopt(
      std::vector<CapturedBuffer> buffers, std::function<std::vector<CapturedBuffer>()> current = nullptr,
      std::function<std::shared_ptr<DeviceStream>(const Device& device)> open_stream = nullptr);

  std::span<const CapturedBuffer> buffers() const { return buffers_; }  // sorted by name
  const CapturedBuffer* Find(std::string_view name) const;              // null: none of that name

  // Of names, devices, addresses, dtypes, shapes and strides: equal before and after every commit.
  Digest TableDigest() const;
  // Throws kFailedPrecondition naming the buffers that the engine has moved since it handed them over.
  void CheckUnmoved() const;

  // The bytes that are served now, read back: row-major, whatever the strides. Host memory.
  std::vector<std::byte> Read(const CapturedBuffer& buffer) const;
  // Of every buffer's name and the digest of its bytes as Read gives them, in name order.
  Digest ServedDigest() const;

  // The same memory, each buffer as `view` describes it: inside the one that it is given, under the same name. What the
  // engine is asked again is seen in the same way.
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
