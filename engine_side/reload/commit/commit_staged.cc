// The commit policy `staged`: the whole version waits beside the live weights, and is copied over them at the end. If
// the copy fails, what is staged is still there, and the copy is done again.
#include <algorithm>
#include <atomic>
#include <optional>
#include <vector>

#include "engine_side/reload/commit/commit.h"
#include "engine_side/reload/commit/committer.h"
#include "engine_side/reload/commit/staging.h"
#include "engine_side/reload/layout/served_digest.h"
#include "engine_side/reload/layout/tensor_loop.h"
#include "src/base/digest/digest.h"

namespace layercast {
namespace {

class StagedCommitter final : public Committer, private LayerSink {
 public:
  explicit StagedCommitter(const CommitParts& parts)
      : parts_(parts),
        shares_(SharesOf(parts.layout.tensors())),
        staging_(parts.layout, parts.kept_memory),
        digests_(parts.layout.tensors().size()) {}

  bool writes_layers() const override { return false; }
  LayerSink& Begin() override {
    std::ranges::fill(digests_, std::nullopt);
    return *this;
  }
  void Drop() override {}

  void Commit() override {
    parts_.pool.For(shares_.size(), [&](std::size_t i) { Write(shares_[i]); });
  }

  // Tensors that another process has staged have no digest yet, so it is computed here.
  Digest digest() const override {
    std::vector<Digest> all(digests_.size());
    parts_.pool.For(all.size(), [&](std::size_t i) {
      all[i] = digests_[i] ? *digests_[i] : DigestOf(staging_.BytesOf(parts_.layout.tensors()[i]));
    });
    return CombineDigests(parts_.layout, all);
  }

  bool RollBack() override { return !wrote_; }
  void Forget() override { wrote_ = false; }

 private:
  void Write(const CommitShare& share) {
    for (std::size_t i = share.first; i <= share.last; ++i) {
      const KernelTensor& tensor = parts_.layout.tensors()[i];
      const std::size_t begin = i == share.first ? share.begin : 0;
      const std::size_t end = i == share.last ? share.end : tensor.num_bytes;
      parts_.failpoints.Hit("commit.copy");
      wrote_ = true;
      const std::span<const std::byte> bytes = staging_.BytesOf(tensor);
      if (end - begin == bytes.size()) {
        WriteCaptured(tensor, bytes);
      } else {
        WritePart(tensor, begin, bytes.subspan(begin, end - begin));
      }
    }
  }

  void Open(std::span<const KernelTensor> tensors) override { staging_.Open(tensors); }
  std::span<std::byte> BytesOf(const KernelTensor& tensor) const override { return staging_.BytesOf(tensor); }
  // The digests are computed now, while the layer is in the caches and the next one is on its way.
  void Close(std::span<const KernelTensor> tensors) override {
    staging_.Close(tensors);
    ForEachTensor(parts_.pool, tensors, [&](std::size_t i) {
      digests_[parts_.layout.IndexOf(tensors[i])] = DigestOf(staging_.BytesOf(tensors[i]));
    });
  }

  const CommitParts parts_;
  const std::vector<CommitShare> shares_;
  Staging staging_;
  std::vector<std::optional<Digest>> digests_;  // by kernel tensor; empty for those that were not closed
  std::atomic<bool> wrote_ = false;
};

}  // namespace

std::unique_ptr<Committer> MakeStagedCommitter(const CommitParts& parts) {
  return std::make_unique<StagedCommitter>(parts);
}

}  // namespace layercast
