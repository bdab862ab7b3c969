// LoRA adapters on the engine's side, on one rank.
#include "layercast/adapters/adapter_receiver.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "layercast/error.h"
#include "python/native/given/rank_model.h"
#include "python/native/options.h"
#include "python/native/owned.h"
#include "python/native/python_tensors.h"
#include "python/native/waits.h"
#include "src/tensor/adapter_tensor_name.h"

namespace layercast::python {
namespace {

DType FactorsNamed(const std::string& name) {
  if (const std::optional<DType> dtype = DTypeFromSafetensors(name)) return *dtype;
  throw Error(ErrorCode::kInvalidArgument, "dtype: expected BF16, F16 or F32, got '" + name + "'");
}

AdapterOptions AdaptersFrom(const nb::kwargs& options) {
  const AdapterOptions usual;
  return {.max_rank = Option(options, "max_rank", usual.max_rank),
          .modules = Option(options, "modules", usual.modules),
          .dtype = FactorsNamed(Option(options, "dtype", std::string("BF16")))};
}

nb::tuple TupleOf(const CapturedBuffer& buffer) {
  return python::TupleOf(TensorSpec{.name = buffer.name, .dtype = buffer.dtype, .shape = buffer.shape});
}

// (layer, shard, first_row, spec of a, spec of b) of each part.
nb::list PartsOf(const nb::kwargs& options) {
  nb::list parts;
  for (const AdapterPart& part : AdapterParts(*TreeOf(ModelFrom(options)), AdaptersFrom(options))) {
    parts.append(nb::make_tuple(part.layer, part.shard, part.first_row, TupleOf(part.a), TupleOf(part.b)));
  }
  return parts;
}

// Keeps the tensors of the slots. The attempt is also read without the GIL.
struct PythonAdapterReceiver {
  void Cancel() { receiver->Cancel(attempt); }
  Kept slots, served;
  std::atomic<std::uint64_t> attempt = 0;  // the latest
  std::unique_ptr<AdapterReceiver> receiver;
};

using OwnedAdapterReceiver = Owned<PythonAdapterReceiver>;

LoadedAdapter Load(OwnedAdapterReceiver& self, std::size_t slot, const AdapterSource& source, std::uint64_t attempt) {
  const std::shared_ptr<PythonAdapterReceiver> open = self.get();
  const std::uint64_t number = attempt != 0 ? attempt : open->attempt + 1;
  open->attempt = std::max<std::uint64_t>(open->attempt, number);
  return RunInterruptibly([open, slot, source, number] { return open->receiver->Load(slot, source, number); },
                          [open, number] { open->receiver->Cancel(number); });
}

AdapterSource SourceFrom(const nb::kwargs& options) {
  return {.path = Option(options, "path", std::string()),
          .publishers = Option(options, "publishers", std::vector<std::string>()),
          .name = Option(options, "name", std::string()),
          .lineage = Option(options, "lineage", std::string()),
          .step = Option(options, "step", std::optional<std::uint64_t>())};
}

void BindLoaded(nb::module_& module) {
  nb::class_<LoadedAdapter>(module, "LoadedAdapter")
      .def_ro("name", &LoadedAdapter::name)
      .def_ro("version", &LoadedAdapter::version)
      .def_ro("base", &LoadedAdapter::base)
      .def_prop_ro("terms",
                   [](const LoadedAdapter& loaded) {
                     nb::list terms;
                     for (const auto& term : loaded.terms) {
                       terms.append(nb::make_tuple(term.a, term.expert, term.rank, term.scale));
                     }
                     return terms;
                   })
      .def_ro("modules", &LoadedAdapter::modules)
      .def_ro("elsewhere", &LoadedAdapter::elsewhere)
      .def_ro("skipped", &LoadedAdapter::skipped)
      .def_ro("warnings", &LoadedAdapter::warnings)
      .def_ro("zero_modules", &LoadedAdapter::zero_modules)
      .def_prop_ro("digest", [](const LoadedAdapter& loaded) { return loaded.digest.ToHex(); })
      .def_prop_ro("report_json", [](const LoadedAdapter& loaded) { return loaded.report.ToJson(); });
}

}  // namespace

void BindAdapters(nb::module_& module) {
  BindLoaded(module);
  nb::class_<OwnedAdapterReceiver>(module, "AdapterReceiver")
      .def("__init__",
           [](OwnedAdapterReceiver* self, const nb::list& slots, const nb::kwargs& options) {
             std::vector<std::vector<CapturedBuffer>> buffers;
             for (nb::handle slot : slots) buffers.push_back(BuffersFrom(nb::cast<nb::dict>(slot)));
             const RankModel model = ModelFrom(options);
             auto made = std::make_unique<PythonAdapterReceiver>();
             made->slots = Keep(slots);
             made->receiver = std::make_unique<AdapterReceiver>(TreeOf(model), model.parallel, AdaptersFrom(options),
                                                                std::move(buffers), ReceiverOptionsFrom(options));
             if (options.contains("served")) {
               const auto served = nb::cast<nb::dict>(options["served"]);
               made->served = Keep(served);
               made->receiver->SetServed(CapturedBuffers::Adopt(BuffersFrom(served)));
             }
             new (self) OwnedAdapterReceiver("adapter receiver", std::move(made));
           })
      .def("close", &OwnedAdapterReceiver::Close)
      .def_prop_ro("closed", &OwnedAdapterReceiver::closed)
      .def("cancel", [](OwnedAdapterReceiver& self) { self.get()->Cancel(); })
      .def("load", [](OwnedAdapterReceiver& self, std::size_t slot, const nb::kwargs& options) {
        return Load(self, slot, SourceFrom(options), Option(options, "attempt", std::uint64_t{0}));
      });
  module.attr("ADAPTERS_PREFIX") = std::string(kAdaptersPrefix);
  module.attr("ADAPTER_CONFIG_TENSOR") = std::string(kAdapterConfigTensor);
  module.def("adapter_parts", [](const nb::kwargs& options) { return PartsOf(options); });
}

}  // namespace layercast::python
