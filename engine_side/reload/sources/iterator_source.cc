// A caller's iterator. Its tensors must be known before it is walked, because plans are made before any byte moves.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine_side/reload/commit/committer.h"
#include "engine_side/reload/sources/kernel_taker.h"
#include "engine_side/reload/sources/walk_source.h"
#include "layercast/error.h"

namespace layercast {
namespace {

class IteratorSource final : public WalkSource {
 public:
  IteratorSource(std::unique_ptr<WeightsIterator> iterator, std::vector<TensorSpec> specs, Form form)
      : iterator_(std::move(iterator)), specs_(std::move(specs)), form_(form) {}

  Form form() const override { return form_; }
  bool is_vouched_for() const override { return true; }  // by this process, which brings it

  Opened Open(const SourceContext& context) override {
    context.report.channel = kLineage;
    context.report.version.lineage = kLineage;
    if (iterator_ == nullptr) throw Error(ErrorCode::kInvalidArgument, "expected an iterator, got null");
    return {.manifest = form_ == Form::kKernel ? KernelTensors(context) : CheckpointTensors(context),
            .configs = {{"the iterator", context.request.config}}};
  }

 protected:
  std::unique_ptr<WeightsIterator> Walk(const SourceContext& /*context*/, const LoadPlan& /*plan*/) override {
    return std::move(iterator_);
  }

 private:
  static constexpr const char* kLineage = "iterator";

  // If there are no specs, those of the last whole version are taken.
  Manifest CheckpointTensors(const SourceContext& context) const {
    if (!specs_.empty()) return Manifest::OfSpecs(kLineage, 0, specs_, context.last_layout);
    if (context.last_layout != nullptr) return Manifest::OfLayout(kLineage, 0, context.last_layout);
    throw Error(ErrorCode::kFailedPrecondition,
                "the first load from an iterator needs the specs of its tensors: plans are made before any byte moves");
  }

  // The names that must come are known: they are those of the engine's kernel tensors. Whether they do come can be
  // checked now if there are specs, and otherwise only at the end.
  Manifest KernelTensors(const SourceContext& context) const {
    if (!specs_.empty()) return KernelManifest(kLineage, specs_, *context.layout);
    if (!WritesLayers(context.options.commit)) {
      return Manifest::OfSpecs(kLineage, 0, SpecsOf(*context.layout));
    }
    throw Error(ErrorCode::kFailedPrecondition,
                "commit policy " + std::string(CommitPolicyName(context.options.commit)) +
                    " needs the specs of an iterator's tensors: coverage is checked before the first byte is written");
  }

  std::unique_ptr<WeightsIterator> iterator_;
  const std::vector<TensorSpec> specs_;
  const Form form_;
};

}  // namespace

ReloadSource FromIterator(std::unique_ptr<WeightsIterator> iterator, std::vector<TensorSpec> specs,
                          bool is_checkpoint_format) {
  using Form = VersionSource::Form;
  return ReloadSource(std::make_unique<IteratorSource>(std::move(iterator), std::move(specs),
                                                       is_checkpoint_format ? Form::kCheckpoint : Form::kKernel));
}

}  // namespace layercast
