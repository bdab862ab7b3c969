#include "engine_side/reload/sources/kept_source.h"

#include <utility>

#include "engine_side/reload/sources/kernel_taker.h"
#include "engine_side/reload/sources/walk_source.h"
#include "layercast/error.h"

namespace layercast {
namespace {

class KeptSource final : public WalkSource {
 public:
  KeptSource(std::unique_ptr<WeightsIterator> tensors, std::vector<TensorSpec> specs, Version version, Digest digest)
      : tensors_(std::move(tensors)), specs_(std::move(specs)), version_(std::move(version)), served_digest_(digest) {}

  Form form() const override { return Form::kKernel; }
  bool is_vouched_for() const override { return true; }  // it was taken before

  Opened Open(const SourceContext& context) override {
    context.report.channel = "previous";
    context.report.version = version_;
    return {.manifest = KernelManifest(version_.lineage, specs_, *context.layout), .version = version_};
  }

  void Check(const Digest& staged, const Digest& /*clean*/) const override {
    if (staged == served_digest_) return;
    throw Error(ErrorCode::kCorrupt, "the previous version, " + version_.ToString() +
                                         ": digest of its served bytes expected " + served_digest_.ToHex() + ", got " +
                                         staged.ToHex());
  }

 protected:
  std::unique_ptr<WeightsIterator> Walk(const SourceContext& /*context*/, const LoadPlan& /*plan*/) override {
    return std::move(tensors_);
  }

 private:
  std::unique_ptr<WeightsIterator> tensors_;
  const std::vector<TensorSpec> specs_;
  const Version version_;
  const Digest served_digest_;
};

}  // namespace

ReloadSource FromKept(std::unique_ptr<WeightsIterator> tensors, std::vector<TensorSpec> specs, Version version,
                      Digest served_digest) {
  return ReloadSource(
      std::make_unique<KeptSource>(std::move(tensors), std::move(specs), std::move(version), served_digest));
}

}  // namespace layercast
