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
#include "src/base/digest/digest_all.h"

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
      ForEachPiece(place, shares_[at], parts_.layout.tensors(), parts_.pool, [&](const TensorPiece& piece) {
        parts_.failpoints.Hit("commit.copy");
        wrote_ = true;
        WritePiece(place, piece, staging_.Staged(piece.tensor));
      });
    }
    places_.work().Wait();
  }

  // Computes those that Close has not computed: of tensors on a device, which are waited for once, and of those that
  // another process has staged.
  std::vector<Digest> digests() const override {
    std::vector<Digest> all(digests_.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = digests_[i].value_or(Digest());
    for (const auto& place : places_.all()) DigestRest(*place, all);
    return all;
  }

  bool RollBack() override { return !wrote_; }
  void Forget() override { wrote_ = false; }

 private:
  void DigestRest(Place& place, std::vector<Digest>& all) const {
    const std::vector<KernelTensor>& tensors = parts_.layout.tensors();
    std::vector<std::size_t> rest;
    std::vector<std::span<const std::byte>> bytes;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (digests_[i] || !place.Holds(tensors[i].destination)) continue;
      rest.push_back(i);
      bytes.push_back(staging_.Staged(tensors[i]));
    }
    std::vector<Digest> of_rest(rest.size());
    const std::unique_ptr<TensorDigests> digests = place.BeginDigests();
    digests->Add(bytes, of_rest);
    digests->Finish();
    place.Wait();  // a device has then copied to host memory what is staged there
    for (std::size_t i = 0; i < rest.size(); ++i) all[rest[i]] = of_rest[i];
  }

  void Open(std::span<const KernelTensor> tensors) override { staging_.Open(tensors); }
  std::span<std::byte> BytesOf(const KernelTensor& tensor) const override { return staging_.BytesOf(tensor); }
  // In host memory the digests are computed now, while the layer is in the caches and the next one is on its way.
  void Close(std::span<const KernelTensor> tensors) override {
    staging_.Close(tensors);
    if (!places_.work().works_at_once()) return;
    std::vector<std::span<const std::byte>> bytes(tensors.size());
    std::ranges::transform(tensors, bytes.begin(), [&](const KernelTensor& tensor) { return staging_.Staged(tensor); });
    std::vector<Digest> digests(tensors.size());
    DigestAll(bytes, digests, parts_.pool);
    for (std::size_t i = 0; i < tensors.size(); ++i) digests_[parts_.layout.IndexOf(tensors[i])] = digests[i];
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
