// The commit policy `in_place`: nothing of the old version is kept. Once some of it was overwritten, the engine is torn
// until a version is whole again.
#include "engine_side/reload/commit/old_bytes.h"
#include "engine_side/reload/commit/write_record.h"

namespace layercast {
namespace {

class NoOldBytes final : public OldBytes {
 public:
  explicit NoOldBytes(const CommitParts& parts) : layout_(parts.layout), written_(parts.layout, parts.kept_memory) {}

  void Keep(std::span<const KernelTensor> tensors) override {
    for (const KernelTensor& tensor : tensors) written_.Note(layout_.IndexOf(tensor));
  }
  bool PutBack() override { return written_.empty(); }
  void Forget() override { written_.Clear(); }

 private:
  const KernelLayout& layout_;
  WriteRecord written_;
};

}  // namespace

std::unique_ptr<OldBytes> MakeNoOldBytes(const CommitParts& parts) { return std::make_unique<NoOldBytes>(parts); }

}  // namespace layercast
