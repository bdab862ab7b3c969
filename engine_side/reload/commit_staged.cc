// `staged`: the version waits beside the live weights, whole, and is copied over them in the end. What is staged is
// still there if that fails: the copy is done again.
#include <atomic>

#include "engine_side/reload/commit.h"
#include "engine_side/reload/committer.h"
#include "engine_side/reload/served_digest.h"
#include "engine_side/reload/staging.h"

namespace layercast {
namespace {

class StagedCommitter final : public Committer {
 public:
  explicit StagedCommitter(const CommitParts& parts) : parts_(parts), staging_(parts.layout, parts.kept_memory) {}

  bool writes_layers() const override { return false; }
  LayerSink& Begin() override { return staging_; }
  void Drop() override {}

  void Commit() override {
    const auto& tensors = parts_.layout.tensors();
    parts_.pool.For(tensors.size(), [&](std::size_t i) {
      parts_.failpoints.Hit("commit.copy");
      wrote_ = true;
      WriteCaptured(tensors[i], staging_.BytesOf(tensors[i]));
    });
  }

  Digest digest() const override { return CombineDigests(parts_.layout, staging_.Digests(parts_.layout, parts_.pool)); }

  bool RollBack() override { return !wrote_; }
  void Forget() override { wrote_ = false; }

 private:
  const CommitParts parts_;
  Staging staging_;
  std::atomic<bool> wrote_ = false;
};

}  // namespace

std::unique_ptr<Committer> MakeStagedCommitter(const CommitParts& parts) {
  return std::make_unique<StagedCommitter>(parts);
}

}  // namespace layercast
