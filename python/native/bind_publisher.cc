// The trainer's side.
#include "layercast/publisher.h"

#include <chrono>
#include <tuple>
#include <utility>

#include "layercast/adapters/adapter_weights.h"
#include "layercast/noise/noise_stages.h"
#include "python/native/given/python_weights.h"
#include "python/native/options.h"
#include "python/native/owned.h"
#include "python/native/waits.h"

namespace layercast::python {
namespace {

using Milliseconds = std::chrono::milliseconds;

// `weights` makes what is published, without the GIL.
template <typename MakeWeights>
PublishedVersion Publish(Owned<Publisher>& publisher, const PublishOptions& options, const MakeWeights& weights) {
  std::shared_ptr<Publisher> open = publisher.get();
  const GilReleased released;
  const std::shared_ptr<Publisher> last = std::move(open);  // if it was closed meanwhile, it ends without the GIL
  return last->Publish(options, weights());
}

std::optional<Noise> NoiseFrom(const nb::kwargs& options) {
  if (!options.contains("noise_sigma")) return std::nullopt;
  return Noise{.sigma = static_cast<float>(Option(options, "noise_sigma", 0.0)),
               .seed = Option(options, "noise_seed", std::uint64_t{0})};
}

PublishOptions CallFrom(const nb::kwargs& options) {
  return {.lineage = Option(options, "lineage", std::string()),
          .step = Option(options, "step", std::uint64_t{0}),
          .mode = Option(options, "stream", false) ? PublishMode::kStream : PublishMode::kSnapshot,
          .layer_order = Option(options, "layer_order", false),
          .part = {.rank = Option(options, "rank", 0), .ranks = Option(options, "ranks", 1)},
          .run = Option(options, "run", std::optional<std::string>()),
          .noise = NoiseFrom(options)};
}

PublisherOptions OptionsFrom(const nb::kwargs& options) {
  const PublisherOptions usual;
  return {.endpoint = Option(options, "endpoint", usual.endpoint),
          .keys = KeysFrom(options),
          .retained_versions = Option(options, "retained_versions", usual.retained_versions),
          .retained_bytes = Option(options, "retained_bytes", usual.retained_bytes),
          .evicted_versions = Option(options, "evicted_versions", usual.evicted_versions),
          .eviction_time = Seconds(options, "eviction_seconds", 600.0),
          .threads = Option(options, "threads", usual.threads),
          .stream_window_bytes = Option(options, "stream_window_bytes", usual.stream_window_bytes),
          .peer_timeout = Seconds(options, "peer_timeout", 5.0),
          .channels = Option(options, "channels", usual.channels),
          .allow_paths = Option(options, "allow_paths", usual.allow_paths),
          .metrics_bind = Option(options, "metrics_bind", usual.metrics_bind),
          .metrics_open = Option(options, "metrics_open", usual.metrics_open),
          .store = {.path = Option(options, "store", usual.store.path),
                    .retained_versions = Option(options, "store_versions", usual.store.retained_versions),
                    .retained_bytes = Option(options, "store_bytes", usual.store.retained_bytes)},
          .nccl_fleet = Option(options, "nccl_fleet", usual.nccl_fleet)};
}

// Looks for signals while it waits, and gives the GIL up.
template <bool (PublishedVersion::*Wait)(Milliseconds) const>
bool WaitFor(const PublishedVersion& published, std::optional<double> seconds) {
  const auto end = std::chrono::steady_clock::now() + FromSeconds("timeout", seconds.value_or(kLongestSeconds));
  while (true) {
    CheckSignals();
    const auto left = std::chrono::ceil<Milliseconds>(end - std::chrono::steady_clock::now());
    const GilReleased released;
    if ((published.*Wait)(std::clamp(left, Milliseconds(0), kSignalLook))) return true;
    if (left <= kSignalLook) return false;
  }
}

void BindPublishedVersion(nb::module_& module) {
  nb::class_<PublishedVersion>(module, "PublishedVersion")
      .def_prop_ro("version", &PublishedVersion::version)
      .def_prop_ro("run", &PublishedVersion::run)
      .def_prop_ro("readers", &PublishedVersion::readers)
      .def("withdraw", &PublishedVersion::Withdraw, nb::call_guard<GilReleased>())
      .def("wait_released", WaitFor<&PublishedVersion::WaitReleased>, nb::arg("seconds").none())
      .def("wait_stored", WaitFor<&PublishedVersion::WaitStored>, nb::arg("seconds").none());
}

// What is published; config.json's text goes with it, if there is one.
void BindWeights(nb::module_& module) {
  const auto with_config = [](Weights weights, std::string config) {
    if (!config.empty()) weights.config = std::move(config);
    return weights;
  };
  nb::class_<Weights>(module, "Weights")
      .def_static("of_nothing", [=](std::string config) { return with_config({}, std::move(config)); })
      .def_static("of_list",
                  [=](const nb::list& pieces, bool borrowed, bool stay, std::string config) {
                    return with_config(WeightsOfList(pieces, borrowed, stay), std::move(config));
                  })
      .def_static("of_pieces",
                  [=](const nb::object& pieces, const nb::list& specs, bool borrowed, bool stay, std::string config) {
                    return with_config(WeightsOfPieces(pieces, specs, borrowed, stay), std::move(config));
                  })
      .def_static("of_iterator",
                  [=](nb::object iterator, bool stay, std::string config) {
                    return with_config(WeightsOfIterator(std::move(iterator), stay), std::move(config));
                  })
      .def_static("of_checkpoint", [=](std::string path, std::string load_format, std::string config) {
        const GilReleased released;
        return with_config(Weights::FromCheckpoint({.path = std::move(path), .load_format = std::move(load_format)}),
                           std::move(config));
      });
  nb::class_<AdapterWeights>(module, "AdapterWeights")
      .def_static(
          "of_folder",
          [](std::string name, const std::string& path, std::optional<Version> base) {
            const GilReleased released;
            AdapterWeights adapter = AdapterWeights::FromFolder(std::move(name), path);
            adapter.base = std::move(base);
            return adapter;
          },
          nb::arg("name"), nb::arg("path"), nb::arg("base").none())
      .def_static(
          "of_tensors",
          [](std::string name, std::string config, const Weights& weights, std::optional<Version> base) {
            return AdapterWeights{
                .name = std::move(name), .config = std::move(config), .weights = weights, .base = std::move(base)};
          },
          nb::arg("name"), nb::arg("config"), nb::arg("weights"), nb::arg("base").none());
}

}  // namespace

void BindPublisher(nb::module_& module) {
  BindPublishedVersion(module);
  BindWeights(module);
  nb::class_<Owned<Publisher>>(module, "Publisher")
      .def("__init__",
           [](Owned<Publisher>* self, const nb::kwargs& given) {
             const PublisherOptions options = OptionsFrom(given);
             std::unique_ptr<Publisher> publisher;
             {
               const GilReleased released;
               publisher = std::make_unique<Publisher>(options);
             }
             new (self) Owned<Publisher>("publisher", std::move(publisher));
           })
      .def_prop_ro("endpoint", [](const Owned<Publisher>& self) { return self.get()->endpoint(); })
      .def_prop_ro("metrics_address", [](const Owned<Publisher>& self) { return self.get()->metrics_address(); })
      .def_prop_ro("closed", &Owned<Publisher>::closed)
      .def("close", &Owned<Publisher>::Close)
      .def("versions", [](const Owned<Publisher>& self) { return self.get()->Versions(); })
      .def(
          "pin",
          [](const Owned<Publisher>& self, const Version& version, bool pinned) { self.get()->Pin(version, pinned); },
          nb::arg("version"), nb::arg("pinned"))
      .def(
          "evict", [](const Owned<Publisher>& self, const Version& version) { self.get()->Evict(version); },
          nb::arg("version"))
      .def("publish",
           [](Owned<Publisher>& self, const Weights& weights, const nb::kwargs& options) {
             return Publish(self, CallFrom(options), [&] { return weights; });
           })
      .def("publish_adapters", [](Owned<Publisher>& self, const std::vector<AdapterWeights>& adapters,
                                  const std::optional<Weights>& base, const nb::kwargs& options) {
        const PublishOptions call = CallFrom(options);
        return Publish(self, call, [&] { return Together(adapters, base, call.part); });
      });
  module.def("run_from_environment", RunFromEnvironment);
  module.def(
      "noise_seed",
      [](const std::string& lineage, std::uint64_t step, std::uint64_t run_seed) {
        return NoiseSeed(lineage, step, run_seed);
      },
      nb::arg("lineage"), nb::arg("step"), nb::arg("run_seed"));
  module.def(
      "noise_at",
      [](const std::string& lineage, std::uint64_t step, double start, double end, int stages, std::uint64_t steps,
         std::uint64_t run_seed) -> std::optional<std::tuple<float, std::uint64_t>> {
        const NoiseStages schedule{.start = start, .end = end, .stages = stages, .steps = steps, .run_seed = run_seed};
        const std::optional<Noise> noise = schedule.At(lineage, step);
        if (!noise) return std::nullopt;
        return std::tuple(noise->sigma, noise->seed);
      },
      nb::arg("lineage"), nb::arg("step"), nb::arg("start"), nb::arg("end"), nb::arg("stages"), nb::arg("steps"),
      nb::arg("run_seed"));
}

}  // namespace layercast::python
