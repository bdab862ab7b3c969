// The trainer's side.
#include "layercast/publisher.h"

#include <chrono>
#include <exception>
#include <span>
#include <unordered_map>

#include "layercast/error.h"
#include "python/native/options.h"
#include "python/native/owned.h"
#include "python/native/python_tensors.h"
#include "python/native/waits.h"

namespace layercast::python {
namespace {

using Milliseconds = std::chrono::milliseconds;

// A list of tensors that may be walked any number of times, in any order, from any thread. The memory is kept until the
// last walk that saw it is forgotten, and what was borrowed.
struct TensorList {
  std::vector<NamedTensor> tensors;
};

// Looks for signals every so often in a walk of the calling thread; the bytes are copied between two steps.
class ListWalk final : public WeightsIterator {
 public:
  explicit ListWalk(std::shared_ptr<const TensorList> list, std::vector<std::size_t> order)
      : list_(std::move(list)), order_(std::move(order)) {}

  std::optional<NamedTensor> Next() override {
    LookForSignals();
    const std::size_t size = order_.empty() ? list_->tensors.size() : order_.size();
    if (next_ == size) return std::nullopt;
    return list_->tensors[order_.empty() ? next_++ : order_[next_++]];
  }

 private:
  void LookForSignals() {
    const auto now = std::chrono::steady_clock::now();
    if (now - looked_ < kSignalLook) return;
    looked_ = now;
    const nb::gil_scoped_acquire gil;
    CheckSignals();
  }

  std::shared_ptr<const TensorList> list_;  // the other owners are other walks, and the version
  const std::vector<std::size_t> order_;    // empty: the list's
  std::size_t next_ = 0;
  std::chrono::steady_clock::time_point looked_ = std::chrono::steady_clock::now();
};

std::vector<std::size_t> PlacesOf(const std::vector<NamedTensor>& tensors, std::span<const std::string> order) {
  if (order.empty()) return {};
  std::unordered_map<std::string_view, std::size_t> places;
  for (std::size_t i = 0; i < tensors.size(); ++i) places.emplace(tensors[i].name, i);
  std::vector<std::size_t> wanted;
  for (const std::string& name : order) {
    const auto place = places.find(name);
    if (place == places.end()) throw Error(ErrorCode::kNotFound, "no tensor '" + name + "' to publish");
    wanted.push_back(place->second);
  }
  return wanted;
}

using PieceSpec = std::tuple<std::string, std::string, Shape, std::optional<std::pair<Shape, Shape>>>;

// `dtype` as torch writes it.
TensorSpec SpecFrom(std::string name, const std::string& dtype, Shape shape) {
  if (dtype == "torch.float4_e2m1fn_x2") {  // two elements in each of torch's
    if (!shape.empty()) shape.back() *= 2;
    return {.name = std::move(name), .dtype = DType::kF4, .shape = std::move(shape)};
  }
  if (const std::optional<DType> known = DTypeFromTorch(dtype)) {
    return {.name = std::move(name), .dtype = *known, .shape = std::move(shape)};
  }
  throw Error(ErrorCode::kUnsupported, "'" + name + "': Layercast has no dtype for " + dtype);
}

// `pieces` is a list of (name, tensor) and (name, tensor, part).
Weights WeightsOfList(const nb::list& pieces, bool borrowed, bool stay) {
  auto list = std::make_shared<TensorList>();
  Weights weights;
  bool parts = false;
  list->tensors.reserve(nb::len(pieces));
  weights.specs.reserve(nb::len(pieces));
  for (nb::handle piece : pieces) {
    const NamedTensor& named = list->tensors.emplace_back(NamedTensorFrom(piece, stay));
    weights.specs.push_back({.name = named.name, .dtype = named.tensor.dtype, .shape = named.tensor.shape});
    parts = parts || named.part;
  }
  if (parts) {
    for (const NamedTensor& named : list->tensors) weights.parts.push_back(named.part);
  }
  weights.borrowed = borrowed;
  weights.walk = [list = std::shared_ptr<const TensorList>(std::move(list))](std::span<const std::string> order) {
    return std::make_unique<ListWalk>(list, PlacesOf(list->tensors, order));
  };
  return weights;
}

// What `pieces` will give: (name, torch's dtype, shape, part) of each. Each walk iterates `pieces` anew, on its own
// thread.
Weights WeightsOfPieces(const nb::object& pieces, const nb::list& specs, bool borrowed, bool stay) {
  Weights weights;
  bool parts = false;
  for (nb::handle spec : specs) {
    auto [name, dtype, shape, part] = nb::cast<PieceSpec>(spec);
    weights.specs.push_back(SpecFrom(std::move(name), dtype, std::move(shape)));
    parts = parts || part;
    weights.parts.push_back(part ? std::optional(TensorPart{part->first, part->second}) : std::nullopt);
  }
  if (!parts) weights.parts.clear();
  weights.borrowed = borrowed;
  weights.walk = [kept = Keep(pieces), stay](std::span<const std::string> order) {
    if (!order.empty()) throw Error(ErrorCode::kUnsupported, "the pieces of a module are walked in its own order");
    const nb::gil_scoped_acquire gil;
    return IteratorFrom(nb::borrow(static_cast<PyObject*>(const_cast<void*>(kept.get()))), stay);
  };
  return weights;
}

// Walked once, by the thread that publishes.
Weights WeightsOfIterator(nb::object iterator, bool stay) {
  return Weights::Once({}, IteratorFrom(std::move(iterator), stay));
}

struct PublishCall {
  std::string lineage;
  std::uint64_t step;
  bool stream, layer_order;
  VersionPart part;
  std::optional<std::string> run;
  std::string config;
};

PublishedVersion Publish(Owned<Publisher>& publisher, PublishCall call, Weights weights) {
  PublishOptions options{.lineage = std::move(call.lineage),
                         .step = call.step,
                         .mode = call.stream ? PublishMode::kStream : PublishMode::kSnapshot,
                         .layer_order = call.layer_order,
                         .part = call.part,
                         .run = std::move(call.run)};
  if (!call.config.empty()) weights.config = std::move(call.config);
  std::shared_ptr<Publisher> open = publisher.get();
  const GilReleased released;
  const std::shared_ptr<Publisher> last = std::move(open);  // if it was closed meanwhile, it ends without the GIL
  return last->Publish(options, std::move(weights));
}

PublishCall CallFrom(const nb::kwargs& options) {
  return {.lineage = Option(options, "lineage", std::string()),
          .step = Option(options, "step", std::uint64_t{0}),
          .stream = Option(options, "stream", false),
          .layer_order = Option(options, "layer_order", false),
          .part = {.rank = Option(options, "rank", 0), .ranks = Option(options, "ranks", 1)},
          .run = Option(options, "run", std::optional<std::string>()),
          .config = Option(options, "config", std::string())};
}

PublisherOptions OptionsFrom(const nb::kwargs& options) {
  const PublisherOptions usual;
  return {.endpoint = Option(options, "endpoint", usual.endpoint),
          .allow_remote = Option(options, "allow_remote", usual.allow_remote),
          .retained_versions = Option(options, "retained_versions", usual.retained_versions),
          .evicted_versions = Option(options, "evicted_versions", usual.evicted_versions),
          .eviction_time = Seconds(options, "eviction_seconds", 600.0),
          .threads = Option(options, "threads", usual.threads),
          .stream_window_bytes = Option(options, "stream_window_bytes", usual.stream_window_bytes),
          .peer_timeout = Seconds(options, "peer_timeout", 5.0),
          .channels = Option(options, "channels", usual.channels),
          .nccl_fleet = Option(options, "nccl_fleet", usual.nccl_fleet)};
}

// Looks for signals while it waits, and gives the GIL up.
bool WaitReleased(const PublishedVersion& published, std::optional<double> seconds) {
  const auto end = std::chrono::steady_clock::now() + FromSeconds("timeout", seconds.value_or(kLongestSeconds));
  while (true) {
    CheckSignals();
    const auto left = std::chrono::ceil<Milliseconds>(end - std::chrono::steady_clock::now());
    const GilReleased released;
    if (published.WaitReleased(std::clamp(left, Milliseconds(0), kSignalLook))) return true;
    if (left <= kSignalLook) return false;
  }
}

void BindPublishedVersion(nb::module_& module) {
  nb::class_<PublishedVersion>(module, "PublishedVersion")
      .def_prop_ro("version", &PublishedVersion::version)
      .def_prop_ro("run", &PublishedVersion::run)
      .def_prop_ro("readers", &PublishedVersion::readers)
      .def("withdraw", &PublishedVersion::Withdraw, nb::call_guard<GilReleased>())
      .def("wait_released", WaitReleased, nb::arg("seconds").none());
}

}  // namespace

void BindPublisher(nb::module_& module) {
  BindPublishedVersion(module);
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
      .def_prop_ro("closed", &Owned<Publisher>::closed)
      .def("close", &Owned<Publisher>::Close)
      .def("publish_list",
           [](Owned<Publisher>& self, const nb::list& pieces, bool borrowed, bool stay, const nb::kwargs& options) {
             return Publish(self, CallFrom(options), WeightsOfList(pieces, borrowed, stay));
           })
      .def("publish_pieces",
           [](Owned<Publisher>& self, const nb::object& pieces, const nb::list& specs, bool borrowed, bool stay,
              const nb::kwargs& options) {
             return Publish(self, CallFrom(options), WeightsOfPieces(pieces, specs, borrowed, stay));
           })
      .def("publish_iterator",
           [](Owned<Publisher>& self, nb::object iterator, bool stay, const nb::kwargs& options) {
             return Publish(self, CallFrom(options), WeightsOfIterator(std::move(iterator), stay));
           })
      .def("publish_checkpoint",
           [](Owned<Publisher>& self, std::string path, std::string load_format, const nb::kwargs& options) {
             Weights weights;
             {
               const GilReleased released;
               weights = Weights::FromCheckpoint({.path = std::move(path), .load_format = std::move(load_format)});
             }
             return Publish(self, CallFrom(options), std::move(weights));
           });
  module.def("run_from_environment", RunFromEnvironment);
}

}  // namespace layercast::python
