// Takes processed layers into the captured buffers: one file for each policy of layercast/commit_policy.h. The receiver
// says when the engine stands still, and what to do when something went wrong.
#pragma once

#include <memory>

#include "engine_side/reload/device_work.h"
#include "engine_side/reload/kernel_layout.h"
#include "engine_side/reload/layer_sink.h"
#include "layercast/commit_policy.h"
#include "layercast/memory.h"
#include "layercast/version.h"
#include "src/base/failpoint.h"

namespace layercast {

// Resource; one thread at a time.
class Committer {
 public:
  virtual ~Committer() = default;

  // Captured buffers are written as layers arrive: the engine stands still from Begin to Commit, not in Commit alone.
  virtual bool writes_layers() const = 0;

  // A version arrives: where its layers go.
  virtual LayerSink& Begin() = 0;
  // It does not go on: what is open in the sink is given back.
  virtual void Drop() = 0;
  // Every layer was closed. When this returns, the captured buffers hold the version, whole.
  virtual void Commit() = 0;
  // Of what was closed: what the captured buffers will read back (CapturedBuffers::ServedDigest).
  virtual Digest digest() const = 0;

  // Puts back what the captured buffers held at the latest Forget. False: that is not kept, and something was written
  // over it. May be called again after it threw, and by the process that comes after one that died.
  virtual bool RollBack() = 0;
  // What the captured buffers hold is a whole version: no way back beyond it is wanted.
  virtual void Forget() = 0;
};

struct CommitParts {
  const KernelLayout& layout;
  MemoryResource& kept_memory;   // what a policy keeps beside the live weights, for good
  MemoryResource& layer_memory;  // what is given back after each layer
  WorkerPool& pool;
  FailPoints& failpoints;
  DeviceWork* device = nullptr;  // where captured buffers are on a device
};

// Takes what it keeps from kept_memory, always in the same way: memory that outlived a process brings it back. Not so
// on a device, whose memory is the process's: there `staged` keeps it beside the captured buffers, and the other
// policies are refused as kUnsupported, naming a buffer.
std::unique_ptr<Committer> MakeCommitter(CommitPolicy policy, const CommitParts& parts);

std::unique_ptr<Committer> MakeStagedCommitter(const CommitParts& parts);
std::unique_ptr<Committer> MakeDeviceStagedCommitter(const CommitParts& parts);
std::unique_ptr<Committer> MakeUndoCommitter(const CommitParts& parts);
std::unique_ptr<Committer> MakeInPlaceCommitter(const CommitParts& parts);

}  // namespace layercast
