// The commit policy `undo`: the old bytes of a captured buffer are saved before it is overwritten, and put back if the
// version does not become whole on every rank.
#include "engine_side/reload/commit.h"
#include "engine_side/reload/commit_layerwise.h"
#include "engine_side/reload/staging.h"
#include "engine_side/reload/write_record.h"

namespace layercast {
namespace {

class UndoCommitter final : public LayerwiseCommitter {
 public:
  explicit UndoCommitter(const CommitParts& parts)
      : LayerwiseCommitter(parts), saved_(parts.layout, parts.kept_memory), log_(parts.layout, parts.kept_memory) {}

  // Saved bytes stay in the log until all of them are back, so a rollback may be started again, here or in a process
  // that follows.
  bool RollBack() override {
    const auto& tensors = parts().layout.tensors();
    parts().pool.For(tensors.size(), [&](std::size_t i) {
      if (!saved_.Has(i)) return;
      parts().failpoints.Hit("commit.undo");
      WriteCaptured(tensors[i], log_.BytesOf(tensors[i]));
    });
    saved_.Clear();
    return true;
  }
  void Forget() override { saved_.Clear(); }

 private:
  // A tensor that is already in the log was saved by an earlier attempt to replace the same version.
  void BeforeWriting(std::size_t index) override {
    if (saved_.Has(index)) return;
    const KernelTensor& tensor = parts().layout.tensors()[index];
    ReadCaptured(tensor.destination, log_.BytesOf(tensor));
    saved_.Note(index);
  }

  WriteRecord saved_;
  Staging log_;
};

}  // namespace

std::unique_ptr<Committer> MakeUndoCommitter(const CommitParts& parts) {
  return std::make_unique<UndoCommitter>(parts);
}

}  // namespace layercast
