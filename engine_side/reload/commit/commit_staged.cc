// The commit policy `staged`: the whole version waits beside the live weights, and is copied over them at the end. If
// the copy fails, what is staged is still there, and the copy is done again.
#include <algorithm>
#include <atomic>
#include <optional>
#include <vector>

#include "engine_side/reload/commit/commit.h"
#include "engine_side/reload/commit/committer.h"
#include "engine_side/reload/commit/places.h"
#include "engine_side/reload/commit/staging.h"
#include "engine_side/reload/layout/served_digest.h"
#include "src/base/digest/digest.h"

namespace layercast {
namespace {

class StagedCommitter final : public Committer, private LayerSink {
 public:
  explicit StagedCommitter(const CommitParts& parts)
      : parts_(parts), places_(parts), staging_(parts.layout, places_.work()), digests_(parts.layout.tensors().size()) {
    for (const auto& place : places_.all()) shares_.push_back(SharesOf(*place, parts.layout.tensors()));
  }

  LayerSink& Begin() override {
    Drop();
    std::ranges::fill(digests_, std::nullopt);
    return *this;
  }
  void Drop() override { staging_.Drop(); }

  // The host waits for a device once, whatever the number of tensors, and does its own part while that works.
  void Commit() override {
    for (std::size_t at = 0; at < shares_.size(); ++at) {
      Place& place = *places_.all()[at];
      parts_.pool.For(shares_[at].size(), [&](std::size_t i) { Write(place, shares_[at][i]); });
    }
    places_.work().Wait();
  }

  // Computes those that Close has not computed: of tensors on a device, which are waited for once, and of those that
  // another process has staged.
  Digest digest() const override {
    const std::vector<KernelTensor>& tensors = parts_.layout.tensors();
    std::vector<Digest> all(tensors.size());
    for (const auto& place : places_.all()) {
      const std::unique_ptr<TensorDigests> rest = place->BeginDigests();
      place->ForEach(tensors, [&](std::size_t i) {
        if (!place->Holds(tensors[i].destination)) return;
        if (digests_[i]) {
          all[i] = *digests_[i];
        } else {
          const std::span<const std::byte> bytes = staging_.Staged(tensors[i]);
          rest->Add(bytes.data(), bytes.size(), all[i]);
        }
      });
      rest->Finish();
      place->Wait();  // a device has then copied to host memory what is staged there
    }
    return CombineDigests(parts_.layout, all);
  }

  bool RollBack() override { return !wrote_; }
  void Forget() override { wrote_ = false; }

 private:
  void Write(Place& place, const CommitShare& share) {
    for (std::size_t i = share.first; i <= share.last; ++i) {
      const KernelTensor& tensor = parts_.layout.tensors()[i];
      if (!place.Holds(tensor.destination)) continue;
      const std::size_t begin = i == share.first ? share.begin : 0;
      const std::size_t end = i == share.last ? share.end : tensor.num_bytes;
      parts_.failpoints.Hit("commit.copy");
      wrote_ = true;
      const std::span<const std::byte> bytes = staging_.Staged(tensor);
      if (end - begin == bytes.size()) {
        WriteCaptured(place, tensor, bytes);
      } else {
        WritePart(place, tensor, begin, bytes.subspan(begin, end - begin));
      }
    }
  }

  void Open(std::span<const KernelTensor> tensors) override { staging_.Open(tensors); }
  std::span<std::byte> BytesOf(const KernelTensor& tensor) const override { return staging_.BytesOf(tensor); }
  // In host memory the digests are computed now, while the layer is in the caches and the next one is on its way.
  void Close(std::span<const KernelTensor> tensors) override {
    staging_.Close(tensors);
    if (!places_.work().works_at_once()) return;
    places_.work().ForEach(tensors, [&](std::size_t i) {
      digests_[parts_.layout.IndexOf(tensors[i])] = DigestOf(staging_.Staged(tensors[i]));
    });
  }

  const CommitParts parts_;
  const Places places_;
  Staging staging_;
  std::vector<std::vector<CommitShare>> shares_;  // by place
  std::vector<std::optional<Digest>> digests_;    // by kernel tensor; empty for those that Close has not computed
  std::atomic<bool> wrote_ = false;
};

}  // namespace

std::unique_ptr<Committer> MakeStagedCommitter(const CommitParts& parts) {
  return std::make_unique<StagedCommitter>(parts);
}

}  // namespace layercast
