// Calls to engines.
#include "layercast/controller.h"

#include <chrono>

#include "python/native/newest_progress.h"
#include "python/native/options.h"
#include "python/native/owned.h"
#include "python/native/waits.h"

namespace layercast::python {
namespace {

struct PythonController {
  PythonController(std::vector<std::string> endpoints, const KeyOptions& keys)
      : controller(std::move(endpoints), keys) {}
  void Cancel() { controller.Cancel(); }
  Controller controller;
  bool in_call = false;  // guarded by the GIL
};

using OwnedController = Owned<PythonController>;

struct PythonCanary {
  explicit PythonCanary(CanaryReload begun) : canary(std::move(begun)) {}
  void Cancel() { canary.Cancel(); }
  CanaryReload canary;
};

using OwnedCanary = Owned<PythonCanary>;

// One call's turn; needs the GIL. Throws kFailedPrecondition while another call has it.
class Turn {
 public:
  explicit Turn(PythonController& of) : of_(of) {
    if (of.in_call) {
      throw Error(ErrorCode::kFailedPrecondition, "the controller is in another call: a thread needs one of its own");
    }
    of.in_call = true;
  }
  ~Turn() { of_.in_call = false; }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  PythonController& of_;
};

template <typename Call>
auto Interruptibly(OwnedController& self, Call call, const std::function<void()>& meanwhile = {}) {
  const std::shared_ptr<PythonController> open = self.get();
  const Turn turn(*open);
  return RunInterruptibly([open, call = std::move(call)] { return call(open->controller); }, [open] { open->Cancel(); },
                          meanwhile);
}

void BindOutcome(nb::module_& module) {
  nb::class_<EngineOutcome>(module, "EngineOutcome")
      .def_ro("endpoint", &EngineOutcome::endpoint)
      .def_ro("ok", &EngineOutcome::ok)
      .def_ro("version", &EngineOutcome::version)
      .def_ro("previous", &EngineOutcome::previous)
      .def_ro("report_json", &EngineOutcome::report)
      .def_ro("given_back", &EngineOutcome::given_back)
      .def_prop_ro("code",
                   [](const EngineOutcome& outcome) {
                     return outcome.error ? std::string(ErrorCodeName(outcome.error->code())) : "";
                   })
      .def_prop_ro("message", [](const EngineOutcome& outcome) {
        return outcome.error ? std::string(outcome.error->what()) : "";
      });
}

void BindSequence(nb::module_& module) {
  nb::class_<GeneratedSequence>(module, "GeneratedSequence")
      .def_ro("tokens", &GeneratedSequence::tokens)
      .def_ro("logprobs", &GeneratedSequence::logprobs)
      .def_ro("finish", &GeneratedSequence::finish)
      .def_prop_ro("spans", [](const GeneratedSequence& sequence) {
        nb::list spans;
        for (const auto& span : sequence.spans) {
          spans.append(nb::make_tuple(span.start, span.end, span.version, span.adapter));
        }
        return spans;
      });
}

std::vector<EngineOutcome> Reload(OwnedController& self, ReloadRequest request, const nb::object& on_progress) {
  const auto progress = std::make_shared<NewestProgress>();
  std::function<void()> meanwhile;
  if (!on_progress.is_none()) {
    request.on_progress = [progress](const EngineProgress& of_engine) { progress->Put(of_engine); };
    meanwhile = [progress, &on_progress] { progress->Tell(on_progress); };
  }
  auto outcomes = Interruptibly(self, [request](Controller& open) { return open.ReloadWeights(request); }, meanwhile);
  if (meanwhile) meanwhile();
  return outcomes;
}

ReloadRequest RequestFrom(const nb::kwargs& options) {
  return {.publisher = Option(options, "publisher", std::string()),
          .store = Option(options, "store", std::string()),
          .version = Option(options, "version", std::optional<Version>()),
          .previous = Option(options, "previous", false),
          .weights_path = Option(options, "weights_path", std::string()),
          .load_format = Option(options, "load_format", std::string("auto")),
          .partial = Option(options, "partial", false),
          .may_keep = Option(options, "may_keep", std::vector<std::string>()),
          .clean = Option(options, "clean", false),
          .allow_config_change = Option(options, "allow_config_change", false),
          .adapters = Option(options, "adapters", std::vector<std::string>()),
          .keep_adapters = Option(options, "keep_adapters", false),
          .channel = Option(options, "channel", std::string()),
          .pause_mode = Option(options, "pause_mode", std::string()),
          .all_or_none = Option(options, "all_or_none", false),
          .trace = Option(options, "trace", std::string()),
          .traceparent = Option(options, "traceparent", std::string()),
          .timeout = Seconds(options, "timeout", 300.0)};
}

std::optional<std::chrono::milliseconds> HeardWithin(const nb::kwargs& options) {
  const auto seconds = Option(options, "heard_within", std::optional<double>());
  return seconds ? std::optional(FromSeconds("heard_within", *seconds)) : std::nullopt;
}

GenerateRequest GenerateFrom(std::vector<std::vector<std::int32_t>> prompts, const nb::kwargs& options) {
  return {.prompts = std::move(prompts),
          .max_new = Option(options, "max_new", std::int64_t{16}),
          .temperature = Option(options, "temperature", 0.0),
          .top_p = Option(options, "top_p", 1.0),
          .top_k = Option(options, "top_k", std::int64_t{0}),
          .seed = Option(options, "seed", std::uint64_t{0}),
          .stop_tokens = Option(options, "stop_tokens", std::vector<std::int32_t>()),
          .adapter = Option(options, "adapter", std::string()),
          .least_version = Option(options, "least_version", std::optional<Version>()),
          .max_staleness = Option(options, "max_staleness", std::optional<std::uint64_t>()),
          .heard_within = HeardWithin(options),
          .ignore_eos = Option(options, "ignore_eos", false),
          .timeout = Seconds(options, "timeout", 300.0)};
}

AdapterRequest AdapterFrom(std::string name, const nb::kwargs& options) {
  return {.name = std::move(name),
          .path = Option(options, "path", std::string()),
          .publisher = Option(options, "publisher", std::string()),
          .version = Option(options, "version", std::optional<Version>()),
          .adapter = Option(options, "adapter", std::string()),
          .pin = Option(options, "pin", false),
          .all_or_none = Option(options, "all_or_none", false),
          .timeout = Seconds(options, "timeout", 300.0)};
}

template <typename Call>
auto Interruptibly(OwnedCanary& self, Call call) {
  const std::shared_ptr<PythonCanary> open = self.get();
  return RunInterruptibly([open, call = std::move(call)] { return call(open->canary); }, [open] { open->Cancel(); });
}

void BindCanary(nb::module_& module) {
  nb::class_<OwnedCanary>(module, "Canary")
      .def("__init__",
           [](OwnedCanary* self, OwnedController& controller, const nb::kwargs& options) {
             const CanaryRequest request{.canaries = Option(options, "canaries", std::vector<std::string>()),
                                         .reload = RequestFrom(options),
                                         .trial = Seconds(options, "trial", 300.0)};
             CanaryReload begun =
                 Interruptibly(controller, [request](Controller& open) { return open.Canary(request); });
             new (self) OwnedCanary("canary", std::make_unique<PythonCanary>(std::move(begun)));
           })
      .def_prop_ro("version", [](const OwnedCanary& self) { return self.get()->canary.version(); })
      .def_prop_ro("canaries", [](const OwnedCanary& self) { return self.get()->canary.canaries(); })
      .def_prop_ro("others", [](const OwnedCanary& self) { return self.get()->canary.others(); })
      .def("close", &OwnedCanary::Close)
      .def("cancel", [](OwnedCanary& self) { self.get()->Cancel(); })
      .def("wait",
           [](OwnedCanary& self, double timeout) {
             const std::chrono::milliseconds most = FromSeconds("timeout", timeout);
             return Interruptibly(self, [most](CanaryReload& open) { return open.Await(most); });
           })
      .def("promote",
           [](OwnedCanary& self) { return Interruptibly(self, [](CanaryReload& open) { return open.Promote(); }); })
      .def("roll_back",
           [](OwnedCanary& self) { return Interruptibly(self, [](CanaryReload& open) { return open.RollBack(); }); });
}

void BindAdapterCalls(nb::class_<OwnedController>& controller) {
  controller
      .def("load_adapter",
           [](OwnedController& self, std::string name, const nb::kwargs& options) {
             const AdapterRequest request = AdapterFrom(std::move(name), options);
             return Interruptibly(self, [request](Controller& open) { return open.LoadAdapter(request); });
           })
      .def("unload_adapter",
           [](OwnedController& self, std::string name) {
             return Interruptibly(self, [name](Controller& open) { return open.UnloadAdapter(name); });
           })
      .def("pin_adapter",
           [](OwnedController& self, std::string name, bool pin) {
             return Interruptibly(self, [name, pin](Controller& open) { return open.PinAdapter(name, pin); });
           })
      .def("list_adapters", [](OwnedController& self, std::size_t engine) {
        return Interruptibly(self, [engine](Controller& open) { return open.ListAdapters(engine); });
      });
}

}  // namespace

void BindController(nb::module_& module) {
  BindOutcome(module);
  BindSequence(module);
  nb::class_<OwnedController> controller(module, "Controller");
  BindAdapterCalls(controller);
  controller
      .def("__init__",
           [](OwnedController* self, std::vector<std::string> endpoints, const nb::kwargs& options) {
             new (self) OwnedController("controller",
                                        std::make_unique<PythonController>(std::move(endpoints), KeysFrom(options)));
           })
      .def_prop_ro("endpoints", [](const OwnedController& self) { return self.get()->controller.endpoints(); })
      .def("close", &OwnedController::Close)
      .def("cancel", [](OwnedController& self) { self.get()->Cancel(); })
      .def(
          "reload",
          [](OwnedController& self, const nb::object& on_progress, const nb::kwargs& options) {
            return Reload(self, RequestFrom(options), on_progress);
          },
          nb::arg("on_progress").none(), nb::arg("options"))
      .def("pause",
           [](OwnedController& self, std::string mode, double lease) {
             const PauseRequest request{.mode = std::move(mode), .lease = FromSeconds("lease", lease)};
             return Interruptibly(self, [request](Controller& open) { return open.Pause(request); });
           })
      .def("resume",
           [](OwnedController& self) { return Interruptibly(self, [](Controller& open) { return open.Resume(); }); })
      .def("sleep",
           [](OwnedController& self, const nb::kwargs& options) {
             const SleepRequest request{.level = Option(options, "level", 1),
                                        .tags = Option(options, "tags", std::vector<std::string>()),
                                        .pause_mode = Option(options, "pause_mode", std::string("wait")),
                                        .timeout = Seconds(options, "timeout", 300.0)};
             return Interruptibly(self, [request](Controller& open) { return open.Sleep(request); });
           })
      .def("wake_up",
           [](OwnedController& self, const std::vector<std::string>& tags, double timeout) {
             const std::chrono::milliseconds patience = FromSeconds("timeout", timeout);
             return Interruptibly(self, [tags, patience](Controller& open) { return open.WakeUp(tags, patience); });
           })
      .def("generate",
           [](OwnedController& self, std::vector<std::vector<std::int32_t>> prompts, std::size_t engine,
              const nb::kwargs& options) {
             const GenerateRequest request = GenerateFrom(std::move(prompts), options);
             return Interruptibly(self, [request, engine](Controller& open) { return open.Generate(request, engine); });
           })
      .def("wait_for_version",
           [](OwnedController& self, const Version& least, double timeout, std::size_t engine) {
             const auto patience = FromSeconds("timeout", timeout);
             Interruptibly(self, [=](Controller& open) { open.WaitForVersion(least, patience, engine); });
           })
      .def("status", [](OwnedController& self, std::size_t engine) {
        return Interruptibly(self, [engine](Controller& open) { return open.Status(engine); });
      });
  BindCanary(module);
}

}  // namespace layercast::python
