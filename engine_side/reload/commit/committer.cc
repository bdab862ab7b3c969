#include "engine_side/reload/commit/committer.h"

#include "engine_side/reload/commit/old_bytes.h"
#include "layercast/error.h"

namespace layercast {
std::unique_ptr<Committer> MakeCommitter(CommitPolicy policy, const CommitParts& parts) {
  switch (policy) {
    case CommitPolicy::kStaged: return MakeStagedCommitter(parts);
    case CommitPolicy::kUndo: return MakeLayerwiseCommitter(parts, MakeUndoLog(parts));
    case CommitPolicy::kInPlace: return MakeLayerwiseCommitter(parts, MakeNoOldBytes(parts));
  }
  throw Error(ErrorCode::kInvalidArgument, "a commit policy of no known kind");
}

}  // namespace layercast
