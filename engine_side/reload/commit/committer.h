// Takes processed layers into the captured buffers. There is one file for each policy of layercast/commit_policy.h. The
// receiver decides when the engine stands still, and what to do when something goes wrong.
#pragma once

#include <memory>
#include <vector>

#include "engine_side/reload/layout/kernel_layout.h"
#include "engine_side/reload/layout/layer_sink.h"
#include "engine_side/reload/work/device_work.h"
#include "layercast/commit_policy.h"
#include "layercast/memory.h"
#include "layercast/version.h"
#include "src/base/failpoint.h"

namespace layercast {

// Resource; one thread at a time.
class Committer {
 public:
  virtual ~Committer() = default;

  // Begins a version, and returns the sink for its layers.
  virtual LayerSink& Begin() = 0;
  // Gives up the version that was begun: frees what is open in the sink.
  virtual void Drop() = 0;
  // To be called when every layer was closed. When it returns, the captured buffers hold the whole version.
  virtual void Commit() = 0;
  // The digest of each kernel tensor that was closed, which is what the captured buffers will read back. All together
  // they make CapturedBuffers::ServedDigest (CombineDigests).
  virtual std::vector<Digest> digests() const = 0;

  // Puts back what the captured buffers held at the latest Forget. Returns false if some of that was overwritten and
  // not kept. May be called again after it threw, and by a process that follows one that died.
  virtual bool RollBack() = 0;
  // To be called when the captured buffers hold a whole version, from which RollBack need not go back.
  virtual void Forget() = 0;
};

struct CommitParts {
  const KernelLayout& layout;
  MemoryResource& kept_memory;   // for what a policy keeps beside the live weights
  MemoryResource& layer_memory;  // for what is freed after each layer
  WorkerPool& pool;
  FailPoints& failpoints;
  DeviceWork* device = nullptr;  // null if all captured buffers are on the host
};

class OldBytes;

// Whether captured buffers are written as layers arrive. If so, the engine must stand still from Begin to Commit, and
// not only in Commit, and nothing is ever staged. Throws kInvalidArgument, as MakeCommitter does, if there is no such
// policy.
bool WritesLayers(CommitPolicy policy);

// Makes the committer of a policy. It allocates from kept_memory always in the same order, so that memory which
// outlives a process brings back what was kept in it. Device memory does not outlive its process, and neither does what
// is kept there, or in pinned memory.
std::unique_ptr<Committer> MakeCommitter(CommitPolicy policy, const CommitParts& parts);

// For policies that write layer by layer.
std::unique_ptr<Committer> MakeLayerwiseCommitter(const CommitParts& parts, std::unique_ptr<OldBytes> old);

}  // namespace layercast
