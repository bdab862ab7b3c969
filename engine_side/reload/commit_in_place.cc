// The commit policy `in_place`: nothing of the old version is kept. Once some of it was overwritten, the engine is torn
// until a version is whole again.
#include "engine_side/reload/commit_layerwise.h"
#include "engine_side/reload/write_record.h"

namespace layercast {
namespace {

class InPlaceCommitter final : public LayerwiseCommitter {
 public:
  explicit InPlaceCommitter(const CommitParts& parts)
      : LayerwiseCommitter(parts), written_(parts.layout, parts.kept_memory) {}

  bool RollBack() override { return written_.empty(); }
  void Forget() override { written_.Clear(); }

 private:
  void BeforeWriting(std::size_t index) override { written_.Note(index); }

  WriteRecord written_;
};

}  // namespace

std::unique_ptr<Committer> MakeInPlaceCommitter(const CommitParts& parts) {
  return std::make_unique<InPlaceCommitter>(parts);
}

}  // namespace layercast
