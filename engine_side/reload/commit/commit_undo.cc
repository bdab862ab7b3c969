// The commit policy `undo`: the old bytes of a captured buffer are saved before it is overwritten, and put back if the
// version does not become whole on every rank. The log is in host memory, so a device keeps no second copy. That of
// buffers in host memory may outlive its process; that of buffers on a device is pinned, and ends with it.
#include "engine_side/reload/commit/commit.h"
#include "engine_side/reload/commit/old_bytes.h"
#include "engine_side/reload/commit/places.h"
#include "engine_side/reload/commit/write_record.h"

namespace layercast {
namespace {

class UndoLog final : public OldBytes {
 public:
  explicit UndoLog(const CommitParts& parts)
      : parts_(parts),
        places_(parts),
        of_device_(parts.device != nullptr ? LogOf(places_.work()) : Buffer()),
        saved_(parts.layout, parts.kept_memory),
        log_lost_(parts.device != nullptr && !saved_.empty()),
        of_host_(LogOf(places_.host())) {}

  // A tensor that is already in the log was saved by an earlier attempt to replace the same version.
  void Keep(std::span<const KernelTensor> tensors) override {
    ForAll(tensors, [this](Place& place, const TensorPiece& piece) {
      if (!saved_.Has(parts_.layout.IndexOf(piece.tensor))) SavePiece(place, piece, Saved(piece.tensor));
    });
    for (const KernelTensor& tensor : tensors) saved_.Note(parts_.layout.IndexOf(tensor));
  }

  // Saved bytes stay in the log until all of them are back, so a rollback may be started again, here or in a process
  // that follows.
  bool PutBack() override {
    if (log_lost_) return false;
    ForAll(parts_.layout.tensors(), [this](Place& place, const TensorPiece& piece) {
      if (!saved_.Has(parts_.layout.IndexOf(piece.tensor))) return;
      parts_.failpoints.Hit("commit.undo");
      RestorePiece(place, piece, Saved(piece.tensor));
    });
    places_.work().Wait();
    saved_.Clear();
    return true;
  }
  void Forget() override {
    saved_.Clear();
    log_lost_ = false;
  }

 private:
  template <class Visit>
  void ForAll(std::span<const KernelTensor> tensors, const Visit& visit) {
    for (const auto& place : places_.all()) {
      ForEachPiece(*place, SharesOf(*place, tensors), tensors, parts_.pool,
                   [&](const TensorPiece& piece) { visit(*place, piece); });
    }
  }
  Buffer LogOf(const Place& place) const {
    return places_.work().Take("a copy of this rank's weights", place.memory().log,
                               static_cast<std::size_t>(parts_.layout.staged_bytes(place.kind())));
  }
  std::span<std::byte> Saved(const KernelTensor& tensor) const {
    const Buffer& log = places_.host().Holds(tensor.destination) ? of_host_ : of_device_;
    return log.span().subspan(tensor.staging_offset, tensor.num_bytes);
  }

  const CommitParts parts_;
  const Places places_;
  Buffer of_device_;   // taken before kept_memory is asked: there may be too little of it
  WriteRecord saved_;  // of tensors whose copy is done or queued: what overwrites them is queued behind it
  bool log_lost_;      // saved_ has notes of a process that died, and whose log went with it
  Buffer of_host_;
};

}  // namespace

std::unique_ptr<OldBytes> MakeUndoLog(const CommitParts& parts) { return std::make_unique<UndoLog>(parts); }

}  // namespace layercast
