// Digests of tensors that lie on a device: the host computes them, of bytes that are brought to it once.
#pragma once

#include <cstddef>

#include "engine_side/device/download.h"
#include "src/base/digest.h"

namespace layercast {

// Resource; one thread only. What it borrows outlives it.
class DigestDownload {
 public:
  explicit DigestDownload(Download& download) : download_(download) {}
  DigestDownload(const DigestDownload&) = delete;
  DigestDownload& operator=(const DigestDownload&) = delete;
  ~DigestDownload() { download_.Drop(); }

  // `digest` is there after Finish.
  void Add(const std::byte* from, std::size_t bytes, Digest& digest) {
    download_.Read(from, bytes, Into(digest, bytes));
  }
  // Of the elements of a walk, packed: `bytes` of them.
  void Add(DType dtype, const std::byte* from, const ElementWalk& walk, std::size_t bytes, Digest& digest) {
    download_.Read(dtype, from, walk, Into(digest, bytes));
  }
  void Finish() { download_.Finish(); }

 private:
  // Tensors come one behind the other, each in as many parts as it takes.
  Download::Visit Into(Digest& digest, std::size_t total) {
    return [this, &digest, total](std::span<const std::byte> bytes) {
      digester_.Update(bytes);
      seen_ += bytes.size();
      if (seen_ != total) return;
      digest = digester_.Finish();
      digester_.Reset();
      seen_ = 0;
    };
  }

  Download& download_;
  Digester digester_;
  std::size_t seen_ = 0;  // of the tensor that is coming
};

}  // namespace layercast
