// What publishers offer, without taking it.
#include <algorithm>

#include "python/native/options.h"
#include "python/native/python_tensors.h"
#include "python/native/waits.h"
#include "src/session/choose/channel_chooser.h"
#include "src/session/fetch/fetch.h"
#include "src/tensor/parts/merged_version.h"

namespace layercast::python {
namespace {

struct Published {
  Version version;
  std::vector<TensorSpec> specs;
  std::string config;
};

Published Ask(const std::vector<std::string>& endpoints, const std::string& lineage, std::optional<std::uint64_t> step,
              std::chrono::milliseconds timeout) {
  FetchOptions options;
  options.keys = Keys::From({});  // those of the environment
  ChannelChooser channels(AllTransports(std::nullopt, options.keys));
  options.channels = &channels;
  options.measure = false;
  FailPoints none;
  const ReceiverIdentity self{"layercast.published", 0, 0, 1};
  const auto session = FetchSession::Open(endpoints, self, lineage, step, options, none, Deadline::After(timeout));
  const MergedVersion merged = Merge(session->manifests(), session->endpoints());
  Published published{merged.manifest.version(), {}, {}};
  for (std::uint32_t i = 0; i < merged.manifest.size(); ++i) published.specs.push_back(merged.manifest.entry(i).spec);
  const std::vector<std::string> configs = session->configs();
  const auto known = std::ranges::find_if(configs, [](const std::string& text) { return !text.empty(); });
  if (known != configs.end()) published.config = *known;
  return published;
}

}  // namespace

void BindPublished(nb::module_& module) {
  module.def(
      "published",
      [](std::vector<std::string> endpoints, std::string lineage, std::optional<std::uint64_t> step, double timeout) {
        const auto patience = FromSeconds("timeout", timeout);
        const Published published = RunInterruptibly([=] { return Ask(endpoints, lineage, step, patience); }, [] {});
        return nb::make_tuple(published.version, ListOf(published.specs), published.config);
      },
      nb::arg("endpoints"), nb::arg("lineage"), nb::arg("step").none(), nb::arg("timeout"));
}

}  // namespace layercast::python
