// Kernel tensors that another engine's rank lends (server/rank/weights_lender.h). Scales and derived tensors come as
// the lender serves them, so nothing is computed from what arrives.
#include <memory>
#include <string>
#include <utility>

#include "engine_side/reload/sources/kernel_taker.h"
#include "engine_side/reload/sources/peer_source.h"
#include "layercast/error.h"
#include "src/base/naming_source.h"

namespace layercast {
namespace {

class LenderSource final : public PeerSource {
 public:
  LenderSource(std::string endpoint, Version version, Digest served_digest)
      : endpoint_(std::move(endpoint)), version_(std::move(version)), served_digest_(served_digest) {}

  Form form() const override { return Form::kKernel; }

  Opened Open(const SourceContext& context) override {
    const MergedVersion lent = Connect(
        context, {.endpoints = {endpoint_}, .lineage = version_.lineage, .step = version_.step, .lender = true});
    const PeerSession& peers = context.peers;
    context.report.version = version_;
    from_ = peers.Peers();
    return {.manifest = NamingSource(from_,
                                     [&] {
                                       return KernelManifest(version_.lineage, lent.manifest.specs(), *context.layout)
                                           .With(lent.manifest.noise());
                                     }),
            .from = from_,
            .configs = peers.configs(),
            .snapshot = peers.is_snapshot(),
            .version = version_};
  }

  // What arrives is what the lender's buffers read back as, but for noise, which each engine adds for itself.
  void Check(const Digest& /*staged*/, const Digest& clean) const override {
    if (clean == served_digest_) return;
    throw Error(ErrorCode::kCorrupt, from_ + ": " + version_.ToString() + ": digest of its served bytes expected " +
                                         served_digest_.ToHex() + ", got " + clean.ToHex());
  }

 private:
  const std::string endpoint_;
  const Version version_;
  const Digest served_digest_;
  std::string from_;
};

}  // namespace

ReloadSource FromEngineRank(std::string endpoint, Version version, Digest served_digest) {
  return ReloadSource(std::make_unique<LenderSource>(std::move(endpoint), std::move(version), served_digest));
}

}  // namespace layercast
