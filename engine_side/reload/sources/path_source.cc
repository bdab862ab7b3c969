// A folder or file: of a checkpoint, which is read in the plan's order, or of kernel tensors.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine_side/reload/prequantized/quantized_checkpoint.h"
#include "engine_side/reload/sources/kernel_files.h"
#include "engine_side/reload/sources/kernel_taker.h"
#include "engine_side/reload/sources/walk_source.h"
#include "layercast/error.h"
#include "src/base/naming_source.h"
#include "src/checkpoint/config_text.h"
#include "src/checkpoint/formats/checkpoint.h"

namespace layercast {
namespace {

// The order in which tensors are read: the plan's, one group of layers after another. Tensors of which this rank keeps
// nothing come last; they are read because their digests are part of the version's.
std::vector<std::uint32_t> LayerOrder(const LoadPlan& plan, std::size_t tensors) {
  std::vector<std::uint32_t> order;
  std::vector<bool> listed(tensors);
  const auto list = [&](std::uint32_t tensor) {
    if (!listed[tensor]) order.push_back(tensor);
    listed[tensor] = true;
  };
  std::vector<PlannedLayer> layers = plan.layers();
  std::ranges::stable_sort(layers, {}, &PlannedLayer::group);
  for (const PlannedLayer& layer : layers) {
    for (const Placement& placement : plan.PlacementsInto(layer)) list(placement.tensor);
  }
  for (std::uint32_t tensor = 0; tensor < listed.size(); ++tensor) list(tensor);
  return order;
}

class PathSource final : public WalkSource {
 public:
  // Empty: the origin, whatever it is by then.
  explicit PathSource(std::optional<Origin> path) : path_(std::move(path)) {}

  Form form() const override {
    return files_ || (path_ && !path_->is_checkpoint_format) ? Form::kKernel : Form::kCheckpoint;
  }

  Opened Open(const SourceContext& context) override {
    if (!path_) path_ = context.origin;
    const CheckpointSource& source = path_->source;
    if (source.path.empty()) {
      throw Error(ErrorCode::kFailedPrecondition, "there is no checkpoint to re-read: none was loaded from a path");
    }
    context.report.channel = "path";
    context.report.version.lineage = DefaultLineage(source.path);
    const bool kernel = !path_->is_checkpoint_format || IsKernelFormat(source);
    Opened opened = kernel ? OpenKernelFiles(context) : OpenCheckpoint(context);
    opened.from = "checkpoint " + source.path;
    if (!context.request.partial) opened.origin = path_;
    return opened;
  }

  void Check(const Digest& staged, const Digest& /*clean*/) const override {
    if (files_) files_->label().CheckServedDigest(staged);
  }

 protected:
  std::unique_ptr<WeightsIterator> Walk(const SourceContext& /*context*/, const LoadPlan& plan) override {
    return files_ ? files_->Weights() : checkpoint_->Weights(LayerOrder(plan, checkpoint_->specs().size()));
  }

 private:
  Opened OpenCheckpoint(const SourceContext& context) {
    const CheckpointSource& source = path_->source;
    const Checkpoint files = Checkpoint::Open(source);
    checkpoint_ = std::make_unique<const QuantizedCheckpoint>(files, context.model, context.quantization,
                                                              context.layer_memory, context.pool);
    return {.manifest = Manifest::OfSpecs(DefaultLineage(source.path), 0, checkpoint_->specs()),
            .configs = ConfigsOf(source, files.config()),
            .in_order = true};
  }

  Opened OpenKernelFiles(const SourceContext& context) {
    const std::string& path = path_->source.path;
    if (context.request.partial) {
      throw Error(ErrorCode::kInvalidArgument,
                  "a partial version: expected tensors of a checkpoint, got kernel tensors in " + path);
    }
    files_.emplace(path, context.parallel, context.recipes.name());
    const std::optional<Version> version = files_->label().version();
    if (version) context.report.version = *version;
    Manifest manifest = NamingSource(
        "checkpoint " + path, [&] { return KernelManifest(DefaultLineage(path), files_->specs(), *context.layout); });
    return {.manifest = std::move(manifest),
            .configs = ConfigsOf(path_->source, ConfigTextBeside(path)),
            .version = version};
  }

  std::optional<Origin> path_;
  std::unique_ptr<const QuantizedCheckpoint> checkpoint_;
  std::optional<const KernelFiles> files_;  // then it is these that path_ holds
};

}  // namespace

ReloadSource FromOrigin() { return ReloadSource(std::make_unique<PathSource>(std::nullopt)); }

ReloadSource FromPath(std::string path, bool is_checkpoint_format) {
  return FromCheckpoint({.path = std::move(path)}, is_checkpoint_format);
}

ReloadSource FromCheckpoint(CheckpointSource checkpoint, bool is_checkpoint_format) {
  return ReloadSource(std::make_unique<PathSource>(Origin{std::move(checkpoint), is_checkpoint_format}));
}

}  // namespace layercast
