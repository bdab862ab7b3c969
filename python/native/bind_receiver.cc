// The engine's side, on one rank.
#include "layercast/receiver.h"

#include <chrono>

#include "engine_side/plan/load_plan.h"
#include "engine_side/reload/layout/kernel_layout.h"
#include "engine_side/reload/layout/layer_recipes.h"
#include "python/native/given/rank_model.h"
#include "python/native/newest_progress.h"
#include "python/native/options.h"
#include "python/native/owned.h"
#include "python/native/python_tensors.h"
#include "python/native/waits.h"

namespace layercast::python {
namespace {

// Adopts the tensors of a dict, and keeps them. Around a commit they are asked again where they are.
CapturedBuffers Adopt(const nb::dict& tensors) {
  const Kept kept = Keep(tensors);
  const auto again = [kept] {
    const nb::gil_scoped_acquire gil;
    return BuffersFrom(nb::borrow<nb::dict>(static_cast<PyObject*>(const_cast<void*>(kept.get()))));
  };
  return CapturedBuffers::Adopt(BuffersFrom(tensors), again);
}

struct PythonReceiver {
  void Cancel() { receiver->Cancel(receiver->attempt()); }
  std::shared_ptr<NewestProgress> progress = std::make_shared<NewestProgress>();
  std::unique_ptr<Receiver> receiver;
  // Guarded by the GIL. As of the last call that returned: the receiver's own change while one is under way.
  int calls = 0;
  std::optional<Version> version;
  bool torn = false;
  std::string report;
};

// Takes over what the receiver says once a call has ended, however it did. Needs the GIL where it is made and ends.
class Ended {
 public:
  explicit Ended(std::shared_ptr<PythonReceiver> of) : of_(std::move(of)) { ++of_->calls; }
  ~Ended() {
    if (--of_->calls > 0) return;  // this one was refused, since another is under way
    of_->version = of_->receiver->version();
    of_->torn = of_->receiver->torn().has_value();
    of_->report = of_->receiver->report().ToJson();
  }
  Ended(const Ended&) = delete;
  Ended& operator=(const Ended&) = delete;

 private:
  std::shared_ptr<PythonReceiver> of_;  // the other owner is the Python object
};

using OwnedReceiver = Owned<PythonReceiver>;

// How far a reload goes: through all of its phases, or only until the version is staged.
struct Phases {
  bool stage_only = false;
  std::uint64_t attempt = 0;  // as in Receiver::Stage
};

Phases PhasesFrom(const nb::kwargs& options) {
  return {.stage_only = Option(options, "stage_only", false), .attempt = Option(options, "attempt", std::uint64_t{0})};
}

std::string Take(Receiver& receiver, ReloadSource source, const Phases& phases) {
  if (!phases.stage_only) return receiver.ReloadWeights(std::move(source)).ToJson();
  receiver.Stage(std::move(source), phases.attempt);
  return receiver.report().ToJson();
}

// Which of a source's tensors are taken.
void Narrow(ReloadSource& source, const nb::kwargs& options) {
  source.partial = Option(options, "partial", source.partial);
  source.may_keep = Option(options, "may_keep", source.may_keep);
  source.allow_config_change = Option(options, "allow_config_change", source.allow_config_change);
  source.config = Option(options, "config", source.config);
  if (Option(options, "clean", false)) source.noise = Noise();
}

// On a thread of its own, while this one looks for signals: for sources that are not walked in Python.
std::string ReloadFrom(OwnedReceiver& self, ReloadSource source, const nb::object& on_progress,
                       const Phases& phases = {}) {
  const std::shared_ptr<PythonReceiver> open = self.get();
  const std::uint64_t attempt = phases.attempt != 0 ? phases.attempt : open->receiver->attempt() + 1;
  std::function<void()> meanwhile;
  if (!on_progress.is_none()) meanwhile = [open, &on_progress] { open->progress->Tell(on_progress); };
  auto from = std::make_shared<ReloadSource>(std::move(source));
  const Ended ended(open);
  const std::string report =
      RunInterruptibly([open, from, phases] { return Take(*open->receiver, std::move(*from), phases); },
                       [open, attempt] { open->receiver->Cancel(attempt); }, meanwhile);
  if (meanwhile) meanwhile();
  return report;
}

// On the calling thread, which is the one that the iterator expects, and which looks for signals at each of its steps.
std::string ReloadFromIterator(OwnedReceiver& self, ReloadSource source, const Phases& phases) {
  const std::shared_ptr<PythonReceiver> open = self.get();
  const Ended ended(open);
  const GilReleased released;
  return Take(*open->receiver, std::move(source), phases);
}

// A list's tensors, which are all there.
ReloadSource SourceOfList(const nb::list& pieces, bool is_checkpoint_format) {
  std::vector<NamedTensor> tensors;
  std::vector<TensorSpec> specs;
  for (nb::handle piece : pieces) {
    const NamedTensor& named = tensors.emplace_back(NamedTensorFrom(piece));
    specs.push_back({.name = named.name, .dtype = named.tensor.dtype, .shape = named.tensor.shape});
  }
  return FromIterator(MakeWeightsIterator(std::move(tensors)), std::move(specs), is_checkpoint_format);
}

void BindReloads(nb::class_<OwnedReceiver>& receiver) {
  receiver
      .def(
          "reload_from_path",
          [](OwnedReceiver& self, const nb::object& on_progress, std::string path, std::string load_format,
             bool is_checkpoint_format, const nb::kwargs& options) {
            ReloadSource source =
                FromCheckpoint({.path = std::move(path), .load_format = std::move(load_format)}, is_checkpoint_format);
            Narrow(source, options);
            return ReloadFrom(self, std::move(source), on_progress, PhasesFrom(options));
          },
          nb::arg("on_progress").none(), nb::arg("path"), nb::arg("load_format"), nb::arg("is_checkpoint_format"),
          nb::arg("options"))
      .def(
          "reload_from_publishers",
          [](OwnedReceiver& self, const nb::object& on_progress, std::vector<std::string> endpoints,
             std::string lineage, std::optional<std::uint64_t> step, const nb::kwargs& options) {
            ReloadSource source = FromPublishers(std::move(endpoints), std::move(lineage), step);
            Narrow(source, options);
            return ReloadFrom(self, std::move(source), on_progress, PhasesFrom(options));
          },
          nb::arg("on_progress").none(), nb::arg("endpoints"), nb::arg("lineage"), nb::arg("step").none(),
          nb::arg("options"))
      .def(
          "reload_from_store",
          [](OwnedReceiver& self, const nb::object& on_progress, std::string path, std::string lineage,
             std::optional<std::uint64_t> step, const nb::kwargs& options) {
            ReloadSource source = FromStore(std::move(path), std::move(lineage), step);
            Narrow(source, options);
            return ReloadFrom(self, std::move(source), on_progress, PhasesFrom(options));
          },
          nb::arg("on_progress").none(), nb::arg("path"), nb::arg("lineage"), nb::arg("step").none(),
          nb::arg("options"))
      .def(
          "reload_from_list",
          [](OwnedReceiver& self, const nb::object& on_progress, const nb::list& pieces, bool is_checkpoint_format,
             const nb::kwargs& options) {
            ReloadSource source = SourceOfList(pieces, is_checkpoint_format);
            Narrow(source, options);
            return ReloadFrom(self, std::move(source), on_progress, PhasesFrom(options));
          },
          nb::arg("on_progress").none(), nb::arg("pieces"), nb::arg("is_checkpoint_format"), nb::arg("options"))
      .def("reload_from_iterator",
           [](OwnedReceiver& self, nb::object iterator, bool is_checkpoint_format, const nb::kwargs& options) {
             ReloadSource source = FromIterator(IteratorFrom(std::move(iterator)), {}, is_checkpoint_format);
             Narrow(source, options);
             return ReloadFromIterator(self, std::move(source), PhasesFrom(options));
           })
      .def(
          "reload_from_origin",
          [](OwnedReceiver& self, const nb::object& on_progress) {
            return ReloadFrom(self, FromOrigin(), on_progress);
          },
          nb::arg("on_progress").none());
}

// Runs one of the phases that come after staging.
template <typename Phase>
auto RunPhase(OwnedReceiver& self, const Phase& phase) {
  const std::shared_ptr<PythonReceiver> open = self.get();
  const Ended ended(open);
  return RunInterruptibly([open, phase] { return phase(*open->receiver); },
                          [open] { open->receiver->Cancel(open->receiver->attempt()); });
}

template <typename Phase>
std::string ReportAfter(OwnedReceiver& self, const Phase& phase) {
  return RunPhase(self, [phase](Receiver& receiver) {
    phase(receiver);
    return receiver.report().ToJson();
  });
}

void BindPhases(nb::class_<OwnedReceiver>& receiver) {
  receiver.def("prepare", [](OwnedReceiver& self) { return ReportAfter(self, [](Receiver& r) { r.Prepare(); }); })
      .def("commit", [](OwnedReceiver& self) { return ReportAfter(self, [](Receiver& r) { r.Commit(); }); })
      .def("abort", [](OwnedReceiver& self) { return ReportAfter(self, [](Receiver& r) { r.Abort(); }); })
      .def("roll_back", [](OwnedReceiver& self) { return RunPhase(self, [](Receiver& r) { return r.RollBack(); }); });
}

nb::list SpecsOf(const RankModel& model) {
  const std::unique_ptr<Module> tree = TreeOf(model);
  const LayerRecipes recipes(model.quantization.recipe,
                             {.power_of_two_scales = model.quantization.power_of_two_scales});
  return ListOf(KernelTensorsOf(LoadPlan::WithoutTensors(*tree), recipes));
}

}  // namespace

void BindReceiver(nb::module_& module) {
  nb::class_<OwnedReceiver> receiver(module, "Receiver");
  receiver
      .def("__init__",
           [](OwnedReceiver* self, const nb::dict& buffers, const nb::kwargs& options) {
             const RankModel model = ModelFrom(options);
             auto made = std::make_unique<PythonReceiver>();
             ReceiverOptions how = ReceiverOptionsFrom(options);
             how.on_progress = [progress = made->progress](const ReloadProgress& now) {
               progress->Put({.state = "receiving", .all = now});
             };
             made->receiver =
                 std::make_unique<Receiver>(TreeOf(model), model.parallel, model.quantization, Adopt(buffers), how);
             made->report = made->receiver->report().ToJson();
             new (self) OwnedReceiver("receiver", std::move(made));
           })
      .def("close", &OwnedReceiver::Close)
      .def_prop_ro("closed", &OwnedReceiver::closed)
      .def("cancel", [](OwnedReceiver& self) { self.get()->Cancel(); })
      .def_prop_ro("version", [](const OwnedReceiver& self) { return self.get()->version; })
      .def_prop_ro("torn", [](const OwnedReceiver& self) { return self.get()->torn; })
      .def_prop_ro("report_json", [](const OwnedReceiver& self) { return self.get()->report; })
      .def("verify", [](OwnedReceiver& self) { return ReportAfter(self, [](Receiver& r) { r.VerifyServed(); }); })
      .def("served_digest", [](OwnedReceiver& self) {
        const std::shared_ptr<PythonReceiver> open = self.get();
        return RunInterruptibly([open] { return open->receiver->captured().ServedDigest().ToHex(); }, [] {});
      });
  BindReloads(receiver);
  BindPhases(receiver);
  module.def("buffer_specs", [](const nb::kwargs& options) { return SpecsOf(ModelFrom(options)); });
}

}  // namespace layercast::python
