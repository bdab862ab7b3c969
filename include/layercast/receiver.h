// The engine's side, on one rank: takes new weights and writes them into the engine's captured buffers. Used by the
// built-in engine, and by an engine of your own.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "layercast/captured_buffers.h"
#include "layercast/export.h"
#include "layercast/noise/noise.h"
#include "layercast/parallel.h"
#include "layercast/receiver_options.h"
#include "layercast/reload_source.h"
#include "layercast/report.h"
#include "layercast/version.h"
#include "layercast/weights_iterator.h"

namespace layercast {

class Module;

// The state of an engine some of whose captured buffers hold one version, and some another. No forward pass may run
// until a whole version is committed. Value.
struct Torn {
  std::optional<Version> from;  // the version served before; empty: none, or not known to this process
  Version to;                   // the version that was being written
};

// Resource; one call at a time, except that Cancel may come at any time: a call that changes anything throws
// kFailedPrecondition during another one, and in a child that was forked. After a call that throws, the engine serves
// what it served before, or is torn(). Which of the two depends on the commit policy and the moment (docs/commit.md).
class LAYERCAST_PUBLIC Receiver {
 public:
  // `model` is this rank's tree, on meta; ModelRegistry builds one from a config.json, or the host program does.
  // `captured` has a buffer for each kernel tensor that the recipe makes of that tree's parameters. Their names and
  // shapes are in docs/models.md and engine_side/quant/RECIPES.md. The first reload refuses a table that does not fit,
  // and says for each buffer what was expected. Throws kInvalidArgument if there is no tree or it is another rank's,
  // kUnsupported for a channel that this build does not know, and whatever opening the relay throws.
  Receiver(std::unique_ptr<Module> model, ParallelConfig parallel, const QuantizationConfig& quantization,
           CapturedBuffers captured, const ReceiverOptions& options = {});
  ~Receiver();
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  // Stage, Commit and VerifyServed in one call: all that an engine of one rank needs. Throws Error; what is served then
  // depends on the commit policy. Under kStaged, a failure before the commit leaves the old version untouched.
  // `attempt` is as in Stage.
  ReloadReport ReloadWeights(ReloadSource source, std::uint64_t attempt = 0);

  // Stage and Commit are the two phases of a reload, for engines of several ranks: stage on all ranks, then commit on
  // all between two forward steps.
  // `attempt` grows with every reload of the engine and is the same on all its ranks, because a stream is walked once
  // for all of them. 0: the receiver counts.
  // Under kStaged, Stage receives and processes everything. Under kUndo and kInPlace it only finds out what the source
  // holds and checks the plan against it; Commit then receives, and writes each layer as soon as it is verified. The
  // session with a publisher is closed until then.
  void Stage(ReloadSource source, std::uint64_t attempt = 0);
  // Makes the checks that Commit begins with: the last chance to refuse before any rank commits. Optional. Throws
  // kFailedPrecondition if nothing is staged. Under kUndo and kInPlace it opens the session with the publisher again,
  // which may take until `timeout`, and throws what that throws, and kFailedPrecondition if it finds another version
  // there.
  void Prepare();
  // Writes what is staged into the captured buffers. Throws kFailedPrecondition if nothing is staged, or if the engine
  // has moved a buffer. After a failure, kStaged still has what was staged, to be committed again; kUndo has put the
  // old bytes back; kInPlace is torn() if anything was written.
  void Commit();
  // Puts back what the latest Commit overwrote, also if this rank's Commit succeeded and another rank's did not. May be
  // called until the next Stage, again after it threw, and by a new process over the same staging_memory after the old
  // one died. Ends a layerwise reload that is under way. Returns false if something was written that the policy cannot
  // put back: this rank is then torn().
  [[nodiscard]] bool RollBack();
  // Sets ReceiverOptions::channel for the reloads from now on.
  void SetChannel(std::string channel);
  // Sets ReceiverOptions::timeout for the reloads from now on.
  void SetTimeout(std::chrono::milliseconds timeout);
  // Drops what is staged or half received, and rolls back what was half written. Does nothing if there is none.
  void Abort();
  // Gives up that attempt, and all before it, for instance because another rank of the engine has failed. An attempt
  // that is still to come is given up in advance; Cancel(attempt()) is for what is under way. May be called from any
  // thread while another one is in a call. Stage throws kCancelled between two tensors or chunks, or within half a
  // second if it is waiting for a publisher; so does Commit while it receives (kUndo, kInPlace). Either throws it too
  // if it is called after Cancel. What is staged already stays until Abort drops it.
  void Cancel(std::uint64_t attempt);
  // The latest attempt, which may be under way. May be called from any thread.
  std::uint64_t attempt() const;
  // Reads the served bytes back and compares them with what was staged. Called after Commit; the engine may run. Throws
  // kCorrupt if they differ: the engine is then torn().
  void VerifyServed();

  // The next two are for an engine that lends memory back while a trainer has the machine (sleep). Both drop what is
  // staged, and throw kFailedPrecondition during a layerwise reload.
  // Gives back the memory that is kept between reloads beside the captured buffers, such as the staged copy. The next
  // reload takes it anew.
  void ReleaseMemory();
  // Likewise. And the captured buffers no longer hold what was committed, because their memory is given back too: the
  // engine is torn(), and nothing but the commit of a whole version repairs that. They must be there again, at the same
  // addresses, when the next reload commits.
  void LoseServed();

  // The next four are the calls of vLLM's layerwise reload. Under kUndo and kInPlace, layers are written as they become
  // whole. So no forward pass may run from initialize_layerwise_reload until finalize_layerwise_processing has
  // returned, or one of these calls has thrown.
  void record_metadata_for_reloading();
  void initialize_layerwise_reload(std::vector<TensorSpec> specs = {});
  // Takes any part of the weights, and may be called any number of times. Returns the names that were loaded.
  std::set<std::string> load_weights(WeightsIterator& weights);
  // Commits if all tensors came exactly once; otherwise throws, naming every missing one.
  ReloadReport finalize_layerwise_processing();

  const std::optional<Version>& version() const;  // served now; empty before the first commit, and while torn
  const std::optional<Torn>& torn() const;        // empty: the engine is not torn
  const ReloadReport& report() const;             // of the latest reload, also of one that failed
  // The buffers that the engine handed over. A buffer that the layout pads or transposes is shown as its tensor alone.
  const CapturedBuffers& captured() const;
  // The noise that the norms are served with; empty: none. Of buffers whose memory outlived a process also if another
  // process has committed it.
  std::optional<Noise> noise() const;
  // For what leaves the engine (an export, what it lends): the buffers, but with the norms as they were published. To
  // be asked for again after each commit.
  CapturedBuffers clean() const;
  // The version that is staged, which AdoptStaged takes after a crash. Throws kFailedPrecondition if none is, and
  // kUnsupported unless the policy is kStaged.
  const Version& staged_version() const;
  // For a restarted rank whose staging memory (ReceiverOptions::staging_memory) survived: takes what lies there as that
  // version, staged whole. kStaged only. Throws kFailedPrecondition if what lies there is not whole, is another
  // version, or is of buffers of another layout, and kCorrupt if the bytes are no longer those that were staged.
  void AdoptStaged(const Version& version);

 private:
  class LAYERCAST_HIDDEN Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace layercast
