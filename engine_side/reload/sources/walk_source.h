// Sources of whole tensors, which are walked once: files, a caller's iterator, random values. What takes the tensors
// brings them as a session brings a stream's: what is to be said of a tensor's values, and then chunks, which are views
// of the tensor itself. Used by those sources, and by the stager for tensors that come call by call.
#pragma once

#include <memory>
#include <vector>

#include "engine_side/reload/sources/version_source.h"
#include "layercast/weights_iterator.h"
#include "src/base/threads/worker_pool.h"

namespace layercast {

// Resource; one thread only. What it borrows outlives it.
class TensorTaker {
 public:
  TensorTaker(const Wanted& wanted, WorkerPool& pool) : wanted_(wanted), pool_(pool) {}
  virtual ~TensorTaker() = default;

  // Takes a tensor in host memory, which is not used after the call. Throws, naming it, if it is not what is wanted, or
  // holds a NaN or infinity.
  virtual void Take(const NamedTensor& named) = 0;
  // To be called after the last tensor.
  virtual void Finish() {}

 protected:
  void Bring(std::uint32_t tensor, const NamedTensor& named, const TensorSummary& summary);

  const Wanted wanted_;
  WorkerPool& pool_;

 private:
  std::vector<RegionView> views_;  // of the chunk that was brought last
};

// Takes the manifest's tensors, each once, and passes over those that models compute and do not load.
class CheckpointTaker final : public TensorTaker {
 public:
  CheckpointTaker(const Wanted& wanted, const Module& model, WorkerPool& pool)
      : TensorTaker(wanted, pool), model_(model), taken_(wanted.manifest.size()) {}
  void Take(const NamedTensor& named) override;

 private:
  void TakeUndeclared(const NamedTensor& named) const;
  void CheckTakes(std::uint32_t tensor, const NamedTensor& named);

  const Module& model_;
  std::vector<bool> taken_;  // by tensor
};

// What takes tensors in a source's form.
std::unique_ptr<TensorTaker> MakeTaker(VersionSource::Form form, const SourceContext& context, const Wanted& wanted);

// Resource; one thread only.
class WalkSource : public VersionSource {
 public:
  void Receive(const SourceContext& context, const Wanted& wanted) final;

 protected:
  // Called once. `plan` is for the manifest that Open returned.
  virtual std::unique_ptr<WeightsIterator> Walk(const SourceContext& context, const LoadPlan& plan) = 0;
};

}  // namespace layercast
