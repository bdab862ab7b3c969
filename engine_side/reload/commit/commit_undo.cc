// The commit policy `undo`: the old bytes of a captured buffer are saved before it is overwritten, and put back if the
// version does not become whole on every rank.
#include "engine_side/reload/commit/commit.h"
#include "engine_side/reload/commit/old_bytes.h"
#include "engine_side/reload/commit/staging.h"
#include "engine_side/reload/commit/write_record.h"
#include "engine_side/reload/layout/read_captured.h"

namespace layercast {
namespace {

class UndoLog final : public OldBytes {
 public:
  explicit UndoLog(const CommitParts& parts)
      : parts_(parts), saved_(parts.layout, parts.kept_memory), log_(parts.layout, parts.kept_memory) {}

  // A tensor that is already in the log was saved by an earlier attempt to replace the same version.
  void Keep(std::size_t index) override {
    if (saved_.Has(index)) return;
    const KernelTensor& tensor = parts_.layout.tensors()[index];
    SaveCaptured(tensor.destination, log_.BytesOf(tensor));
    saved_.Note(index);
  }

  // Saved bytes stay in the log until all of them are back, so a rollback may be started again, here or in a process
  // that follows.
  bool PutBack() override {
    const auto& tensors = parts_.layout.tensors();
    parts_.pool.For(tensors.size(), [&](std::size_t i) {
      if (!saved_.Has(i)) return;
      parts_.failpoints.Hit("commit.undo");
      WriteCaptured(tensors[i], log_.BytesOf(tensors[i]));
    });
    saved_.Clear();
    return true;
  }
  void Forget() override { saved_.Clear(); }

 private:
  const CommitParts parts_;
  WriteRecord saved_;
  Staging log_;
};

}  // namespace

std::unique_ptr<OldBytes> MakeUndoLog(const CommitParts& parts) { return std::make_unique<UndoLog>(parts); }

}  // namespace layercast
