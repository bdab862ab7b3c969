// What the policies `undo` and `in_place` have in common: a layer is processed into scratch memory, and written over
// the live weights as soon as it is whole. They differ in what they do before that.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "engine_side/reload/committer.h"

namespace layercast {

class LayerwiseCommitter : public Committer, private LayerSink {
 public:
  bool writes_layers() const final { return true; }
  LayerSink& Begin() final;
  void Drop() final { scratch_.clear(); }
  void Commit() final {}  // the last layer's Close wrote the last byte
  Digest digest() const final;

 protected:
  explicit LayerwiseCommitter(const CommitParts& parts) : parts_(parts) {}
  const CommitParts& parts() const { return parts_; }

  // Called before the captured buffer of kernel tensor `index` is written. Several threads may call it, for different
  // tensors.
  virtual void BeforeWriting(std::size_t index) = 0;

 private:
  void Open(std::span<const KernelTensor> tensors) final;
  std::span<std::byte> BytesOf(const KernelTensor& tensor) const final;
  void Close(std::span<const KernelTensor> tensors) final;

  const CommitParts parts_;
  std::map<std::size_t, Buffer> scratch_;  // of open layers, by the index of their first kernel tensor
  std::vector<Digest> digests_;            // by kernel tensor, of closed layers
};

}  // namespace layercast
