#include "engine_side/adapters/load/offered_adapter.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine_side/reload/sources/peer_source.h"
#include "layercast/error.h"
#include "src/adapter/adapter_text.h"
#include "src/adapter/tied_factors.h"
#include "src/base/utf8.h"
#include "src/session/choose/channel_chooser.h"
#include "src/tensor/adapter_tensor_name.h"
#include "src/tensor/parts/merged_version.h"
#include "src/transport/all/transports.h"

namespace layercast {
namespace {

// Whether all elements are zeros, of either sign. The sign of an element of bf16, f16 and f32 is in its last byte.
bool IsZero(const TensorView& tensor) {
  const auto bytes = static_cast<std::size_t>(tensor.num_bytes());
  const auto size = static_cast<std::size_t>(BitsPerElement(tensor.dtype)) / 8;
  for (std::size_t i = 0; i < bytes; ++i) {
    const std::byte sign = (i + 1) % size == 0 ? std::byte{0x80} : std::byte{0};
    if ((tensor.data[i] & ~sign) != std::byte{0}) return false;
  }
  return true;
}

OfferedAdapter InFolder(const std::string& path) {
  OfferedAdapter offered;
  offered.folder = std::make_shared<const AdapterFolder>(path);
  const AdapterFolder& folder = *offered.folder;
  offered.config = folder.config();
  offered.tensors = offered.own = folder.specs();
  for (std::uint32_t i = 0; i < offered.tensors.size(); ++i) offered.of_adapter.push_back(i);
  offered.adapter = ReadAdapterTensors(offered.tensors, offered.config);
  CheckTiedFactors(offered.adapter, offered.config, [&](std::uint32_t index) { return folder.Read(index); });
  return offered;
}

// Which of a version's adapters is meant.
const std::pair<const std::string, std::string>& Meant(const std::map<std::string, std::string>& texts,
                                                       const std::string& name, const std::string& version) {
  const auto found = name.empty() && texts.size() == 1 ? texts.begin() : texts.find(name);
  if (found != texts.end()) return *found;
  std::string known;
  for (const auto& [each, text] : texts) known += (known.empty() ? "" : ", ") + Quote(each);
  if (texts.empty()) throw Error(ErrorCode::kNotFound, version + " has no adapters");
  throw Error(
      name.empty() ? ErrorCode::kInvalidArgument : ErrorCode::kNotFound,
      version +
          (name.empty() ? " has several adapters: expected one of " : " has no adapter " + Quote(name) + ": it has ") +
          known);
}

// Publishers offer none such. It would have to be drawn on the norms of the base, which stays as it is.
void ExpectNoNoiseOfAdapters(const Manifest& manifest) {
  const auto of_base = [](const Manifest::Entry& entry) { return !AdapterTensorName::Of(entry.spec.name); };
  if (!manifest.noise() || std::ranges::any_of(manifest.entries(), of_base)) return;
  throw Error(ErrorCode::kUnsupported, "version " + manifest.version().ToString() +
                                           " has noise, and adapters alone: expected a base beside them");
}

OfferedAdapter AtPublishers(const AdapterSource& source, const AskingRank& asking) {
  auto session = FetchSession::Open(source.publishers, asking.self, source.lineage, source.step, asking.options,
                                    asking.failpoints, asking.deadline);
  const Manifest manifest = Merge(session->manifests(), session->endpoints()).manifest;
  const Version& version = session->manifests().front().version();
  const auto texts = AdapterTexts(session->configs().front());
  const auto& [name, text] = Meant(texts, source.name, "version " + version.ToString());

  ExpectNoNoiseOfAdapters(manifest);
  OfferedAdapter offered;
  offered.name = name;
  offered.config_text = text;
  offered.tensors = manifest.specs();
  offered.lineage = version.lineage;
  offered.step = version.step;
  offered.is_stream = session->mode() == PublishMode::kStream;
  AdapterText parsed = AdapterText::FromText(text);
  offered.config = std::move(parsed.config);
  offered.base = std::move(parsed.base);
  for (std::uint32_t i = 0; i < offered.tensors.size(); ++i) {
    const auto of = AdapterTensorName::Of(offered.tensors[i].name);
    if (!of || of->adapter != name) continue;
    if (of->tensor == kAdapterConfigTensor) {
      offered.text = i;
      continue;
    }
    offered.own.push_back({std::string(of->tensor), offered.tensors[i].dtype, offered.tensors[i].shape});
    offered.of_adapter.push_back(i);
  }
  if (!offered.text) {
    throw Error(ErrorCode::kCorrupt, "version " + version.ToString() + ": adapter " + Quote(name) +
                                         " has no configuration among its tensors");
  }
  offered.adapter = ReadAdapterTensors(offered.own, offered.config);
  *offered.zero_modules =
      static_cast<std::uint64_t>(std::ranges::count_if(offered.adapter.modules, [&](const AdapterModule& module) {
        return manifest.entry(offered.of_adapter[module.b]).amax == 0;
      }));
  offered.session = std::move(session);
  return offered;
}

}  // namespace

OfferedAdapter FindAdapter(const AdapterSource& source, const AskingRank& asking) {
  if (source.path.empty() == source.publishers.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "an adapter: expected a folder or publishers, got " +
                                                 std::string(source.path.empty() ? "neither" : "both"));
  }
  if (!source.path.empty() && !asking.options.keys.may_be_unsigned()) {
    throw Error(ErrorCode::kPermissionDenied,
                "nobody signs an adapter that comes from a path, and here is taken what is signed by " +
                    asking.options.keys.trusted()->source() +
                    " (--trust) alone: expected a publisher that signs, or --allow-unsigned");
  }
  return source.path.empty() ? AtPublishers(source, asking) : InFolder(source.path);
}

std::vector<std::string> AdaptersOf(const std::vector<std::string>& publishers, const Version& version,
                                    const Keys& keys, Deadline deadline) {
  ChannelChooser channels(AllTransports(std::nullopt, keys));
  FetchOptions options;  // by any channel, since nothing is to come
  options.keys = keys;
  options.channels = &channels;
  options.measure = false;
  FailPoints none;
  const auto session =
      FetchSession::Open(publishers, {"a list of adapters"}, version.lineage, version.step, options, none, deadline);
  std::vector<std::string> names;
  for (const auto& [name, text] : AdapterTexts(session->configs().front())) names.push_back(name);
  return names;
}

ReloadSource BytesOf(OfferedAdapter& offered, const AdapterSource& source) {
  if (offered.folder == nullptr) {
    return FromOpenPublishers({.endpoints = source.publishers, .lineage = offered.lineage, .step = offered.step},
                              std::move(offered.session));
  }
  std::vector<bool> is_b(offered.tensors.size());
  for (const AdapterModule& module : offered.adapter.modules) is_b[module.b] = true;
  return FromIterator(MakeWeightsIterator([folder = offered.folder, zeros = offered.zero_modules, is_b,
                                           next = std::size_t{0}]() mutable -> std::optional<NamedTensor> {
                        if (next == folder->specs().size()) return std::nullopt;
                        NamedTensor tensor = folder->Read(next);
                        if (is_b[next++] && IsZero(tensor.tensor)) ++*zeros;
                        return tensor;
                      }),
                      offered.tensors);
}

}  // namespace layercast
