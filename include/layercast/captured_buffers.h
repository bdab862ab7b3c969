// The engine's own weight memory: the addresses that its CUDA graphs captured. An engine hands them to a Receiver. They
// are the only memory of the engine that Layercast writes, in one stage (engine_side/reload/commit/commit); it moves
// none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/captured_buffer.h"
#include "layercast/export.h"
#include "layercast/tensor.h"
#include "layercast/version.h"

namespace layercast {

class CapturedOnDevice;
class ReloadStream;  // engine_side/reload/device/reload_stream.h

// The table of an engine's captured buffers, fixed for the life of the engine. Value: copies describe the same memory.
// Reading is thread-safe; only the commit stage writes to the buffers.
class LAYERCAST_PUBLIC CapturedBuffers {
 public:
  // Makes the table of `buffers`.
  // `current` is called around every commit and must return the same table, in any order. An engine whose buffers could
  // move (a tensor's data_ptr) proves by it that they did not. If it is null, the adopted addresses are taken on trust.
  // `open_stream` opens a stream of the buffers' device; if it is null, CUDA opens it.
  // Some buffers may lie on one device and the others in host memory, for an engine that offloads some layers.
  // Throws kInvalidArgument, naming the buffer, on a repeated name, a null address, strides that do not match the
  // shape, a negative stride, strided elements of less than a byte, elements or buffers that overlap, buffers on two
  // devices, or a buffer on a device with more than five irregular strides. Throws kUnsupported, saying why, if there
  // is no such device.
  static CapturedBuffers Adopt(
      std::vector<CapturedBuffer> buffers, std::function<std::vector<CapturedBuffer>()> current = nullptr,
      std::function<std::shared_ptr<ReloadStream>(const Device& device)> open_stream = nullptr);

  std::span<const CapturedBuffer> buffers() const { return buffers_; }  // sorted by name
  const CapturedBuffer* Find(std::string_view name) const;              // null: no buffer has that name

  // Digest of names, devices, addresses, dtypes, shapes and strides: equal before and after every commit.
  Digest TableDigest() const;
  // Throws kFailedPrecondition naming the buffers that the engine has moved since it handed them over.
  void CheckUnmoved() const;

  // Reads back the bytes that are served now, into host memory: row-major, whatever the buffer's strides and device.
  std::vector<std::byte> Read(const CapturedBuffer& buffer) const;
  // A digest over all buffers, in name order: over each one's name and the digest of its bytes as Read gives them.
  Digest ServedDigest() const;

  // A table of the same memory in which `view` has described each buffer anew. A view must stay inside the buffer that
  // it is given, and keep its name. (A table that is only read may show copies in host memory instead.) What Adopt's
  // `current` returns is seen through `view` as well.
  CapturedBuffers SeenAs(std::function<CapturedBuffer(CapturedBuffer)> view) const;

  // A new stream of the device that buffers lie on. Null if all buffers are in host memory.
  std::shared_ptr<ReloadStream> OpenStream() const;

 private:
  explicit CapturedBuffers(std::vector<CapturedBuffer> buffers) : buffers_(std::move(buffers)) {}

  std::vector<CapturedBuffer> buffers_;
  std::function<std::vector<CapturedBuffer>()> current_;
  std::shared_ptr<CapturedOnDevice> on_device_;  // null: all in host memory; the other owners are copies of the table
};

}  // namespace layercast
