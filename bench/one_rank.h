// A publisher and one rank of an engine in this process, driven as their owners would drive them. Used by benchmarks of
// whole syncs.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/decoder_layers.h"
#include "bench/samples.h"
#include "bench/throttled_transport.h"
#include "engine_side/quant/recipes/recipe_table.h"
#include "engine_side/reload/receive/attempt.h"
#include "engine_side/reload/receive/stager.h"
#include "layercast/publisher.h"

namespace layercast::bench {

inline double MillisecondsSince(Deadline::Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Deadline::Clock::now() - begin).count();
}

class Trainer {
 public:
  // Versions lie in the trainer's own memory, or, if `copies`, in a snapshot's.
  explicit Trainer(const Size& model, const std::string& channel = "inproc", bool copies = false)
      : specs_(SpecsOf(model)), copies_(copies), publisher_(Options(channel)) {
    for (const TensorSpec& spec : specs_) {
      memory_.emplace_back(host_, static_cast<std::size_t>(spec.num_bytes()));
      FillWithWeights(memory_.back().span());
      tensors_.push_back({spec.name, {spec.dtype, spec.shape, memory_.back().data(), {}}, nullptr});
      bytes_ += memory_.back().size();
    }
  }
  std::string endpoint() const { return publisher_.endpoint(); }
  const std::vector<NamedTensor>& weights() const { return tensors_; }
  double bytes() const { return static_cast<double>(bytes_); }
  double tensors() const { return static_cast<double>(specs_.size()); }
  // Publishes a new version, of which nobody has asked for a digest yet.
  void Publish(PublishMode mode = PublishMode::kSnapshot) {
    Weights weights{.specs = specs_,
                    .walk = [this](std::span<const std::string>) { return MakeWeightsIterator(OneByOne()); },
                    .borrowed = !copies_};
    PublishOptions options;
    options.lineage = "bench";
    options.step = ++step_;
    options.mode = mode;
    publisher_.Publish(options, std::move(weights));
  }

 private:
  // Yields tensors as a walk over a trainer's own does (layercast/torch/publish.h): each is named and described when it
  // is due.
  std::function<std::optional<NamedTensor>()> OneByOne() const {
    return [this, next = std::size_t{0}]() mutable -> std::optional<NamedTensor> {
      if (next == tensors_.size()) return std::nullopt;
      return tensors_[next++];
    };
  }
  static PublisherOptions Options(const std::string& channel) {
    PublisherOptions options;
    options.channels = {channel};
    return options;
  }

  const std::vector<TensorSpec> specs_;
  const bool copies_;
  HostMemory host_;
  std::vector<Buffer> memory_;
  std::vector<NamedTensor> tensors_;
  std::uint64_t bytes_ = 0;
  std::uint64_t step_ = 0;
  Publisher publisher_;
};

struct Times {
  double staged = 0;  // ms
  double committed = 0;
};

// One rank, as a receiver drives it.
class Engine {
 public:
  // `recipe` is a recipe's name. `trace` may be null.
  Engine(const Size& model, const std::string& recipe, CommitPolicy commit, std::string publisher,
         std::vector<std::unique_ptr<Transport>> channels, const ParallelConfig& parallel = {},
         TraceRecorder* trace = nullptr)
      : publisher_(std::move(publisher)),
        captured_(MakeBuffers(*ModelOf(model, parallel), model, recipe)),
        stager_(ModelOf(model, parallel), parallel, {recipe}, captured_, Options(commit, trace), failpoints_, report_,
                std::move(channels)) {}

  Times Reload() {
    const auto begin = Deadline::Clock::now();
    Times times;
    stager_.Open(FromPublisher(publisher_), ++attempt_, {});
    const StagedVersion staged = stager_.Receive();
    times.staged = MillisecondsSince(begin);
    stager_.committer().Commit();
    times.committed = MillisecondsSince(begin);
    stager_.committer().Forget();
    served_ = staged.digest;
    return times;
  }
  const ReloadReport& report() const { return report_; }
  bool ServesWhatItTook() const { return captured_.ServedDigest() == served_; }

 private:
  static ReceiverOptions Options(CommitPolicy commit, TraceRecorder* trace) {
    ReceiverOptions options;
    options.commit = commit;
    options.trace = trace;
    return options;
  }
  CapturedBuffers MakeBuffers(const Module& model, const Size& size, const std::string& recipe) {
    const Manifest manifest = Manifest::OfSpecs("bench", 0, SpecsOf(size));
    std::vector<CapturedBuffer> table;
    for (const TensorSpec& spec : KernelTensorsOf(LoadPlan::Build(model, manifest), *MakeRecipe(recipe))) {
      memory_.emplace_back(host_, static_cast<std::size_t>(spec.num_bytes()));
      std::fill(memory_.back().span().begin(), memory_.back().span().end(), std::byte{0});
      table.push_back({spec.name, memory_.back().data(), spec.dtype, spec.shape, {}, {}});
    }
    return CapturedBuffers::Adopt(std::move(table));
  }

  const std::string publisher_;
  HostMemory host_;
  std::vector<Buffer> memory_;
  const CapturedBuffers captured_;
  FailPoints failpoints_;
  ReloadReport report_;
  Stager stager_;
  std::uint64_t attempt_ = 0;
  Digest served_;
};

}  // namespace layercast::bench
