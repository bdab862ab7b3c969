// Calls to engines.
#include "layercast/controller.h"

#include <chrono>
#include <map>
#include <mutex>

#include "python/native/owned.h"
#include "python/native/waits.h"

namespace layercast::python {
namespace {

std::chrono::milliseconds FromSeconds(double seconds) {
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
}

template <typename Call>
auto Interruptibly(Owned<Controller>& self, Call call) {
  const std::shared_ptr<Controller> open = self.get();
  return RunInterruptibly([open, call = std::move(call)] { return call(*open); }, [open] { open->Cancel(); });
}

void BindOutcome(nb::module_& module) {
  nb::class_<EngineOutcome>(module, "EngineOutcome")
      .def_ro("endpoint", &EngineOutcome::endpoint)
      .def_ro("ok", &EngineOutcome::ok)
      .def_ro("version", &EngineOutcome::version)
      .def_ro("previous", &EngineOutcome::previous)
      .def_ro("report_json", &EngineOutcome::report)
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
        for (const auto& span : sequence.spans) spans.append(nb::make_tuple(span.start, span.end, span.version));
        return spans;
      });
}

// Progress of a reload is told on the thread that called, between two looks for signals: the newest of each engine.
class NewestProgress {
 public:
  void Put(const EngineProgress& progress) {
    const std::lock_guard lock(mutex_);
    newest_[progress.engine] = progress;
  }
  void Tell(const nb::object& callback) {
    std::map<std::size_t, EngineProgress> newest;
    {
      const std::lock_guard lock(mutex_);
      newest.swap(newest_);
    }
    for (const auto& [engine, progress] : newest) {
      callback(progress.endpoint, progress.state, progress.all.stage, progress.all.bytes, progress.all.bytes_total,
               progress.all.layers, progress.all.layers_total);
    }
  }

 private:
  std::mutex mutex_;
  std::map<std::size_t, EngineProgress> newest_;  // guarded by mutex_
};

std::vector<EngineOutcome> Reload(Owned<Controller>& self, ReloadRequest request, const nb::object& on_progress) {
  const std::shared_ptr<Controller> open = self.get();
  const auto progress = std::make_shared<NewestProgress>();
  std::function<void()> meanwhile;
  if (!on_progress.is_none()) {
    request.on_progress = [progress](const EngineProgress& of_engine) { progress->Put(of_engine); };
    meanwhile = [progress, &on_progress] { progress->Tell(on_progress); };
  }
  auto outcomes =
      RunInterruptibly([open, request] { return open->ReloadWeights(request); }, [open] { open->Cancel(); }, meanwhile);
  if (meanwhile) meanwhile();
  return outcomes;
}

ReloadRequest RequestFrom(const nb::kwargs& options) {
  const auto get = [&options]<typename T>(const char* name, T otherwise) {
    return options.contains(name) ? nb::cast<T>(options[name]) : otherwise;
  };
  return {.publisher = get("publisher", std::string()),
          .version = get("version", std::optional<Version>()),
          .engine = get("engine", std::string()),
          .weights_path = get("weights_path", std::string()),
          .load_format = get("load_format", std::string("auto")),
          .partial = get("partial", false),
          .may_keep = get("may_keep", std::vector<std::string>()),
          .allow_config_change = get("allow_config_change", false),
          .channel = get("channel", std::string()),
          .pause_mode = get("pause_mode", std::string()),
          .all_or_none = get("all_or_none", false),
          .timeout = FromSeconds(get("timeout", 300.0))};
}

GenerateRequest GenerateFrom(std::vector<std::vector<std::int32_t>> prompts, const nb::kwargs& options) {
  const auto get = [&options]<typename T>(const char* name, T otherwise) {
    return options.contains(name) ? nb::cast<T>(options[name]) : otherwise;
  };
  return {.prompts = std::move(prompts),
          .max_new = get("max_new", std::int64_t{16}),
          .temperature = get("temperature", 0.0),
          .top_p = get("top_p", 1.0),
          .top_k = get("top_k", std::int64_t{0}),
          .seed = get("seed", std::uint64_t{0}),
          .stop_tokens = get("stop_tokens", std::vector<std::int32_t>()),
          .ignore_eos = get("ignore_eos", false),
          .timeout = FromSeconds(get("timeout", 300.0))};
}

}  // namespace

void BindController(nb::module_& module) {
  BindOutcome(module);
  BindSequence(module);
  nb::class_<Owned<Controller>>(module, "Controller")
      .def("__init__",
           [](Owned<Controller>* self, std::vector<std::string> endpoints) {
             new (self) Owned<Controller>("controller", std::make_unique<Controller>(std::move(endpoints)));
           })
      .def_prop_ro("endpoints", [](const Owned<Controller>& self) { return self.get()->endpoints(); })
      .def("close", &Owned<Controller>::Close)
      .def("cancel", [](Owned<Controller>& self) { self.get()->Cancel(); })
      .def(
          "reload",
          [](Owned<Controller>& self, const nb::object& on_progress, const nb::kwargs& options) {
            return Reload(self, RequestFrom(options), on_progress);
          },
          nb::arg("on_progress").none(), nb::arg("options"))
      .def("pause",
           [](Owned<Controller>& self, std::string mode, double lease) {
             const PauseRequest request{.mode = std::move(mode), .lease = FromSeconds(lease)};
             return Interruptibly(self, [request](Controller& open) { return open.Pause(request); });
           })
      .def("resume",
           [](Owned<Controller>& self) { return Interruptibly(self, [](Controller& open) { return open.Resume(); }); })
      .def("generate",
           [](Owned<Controller>& self, std::vector<std::vector<std::int32_t>> prompts, std::size_t engine,
              const nb::kwargs& options) {
             const GenerateRequest request = GenerateFrom(std::move(prompts), options);
             return Interruptibly(self, [request, engine](Controller& open) { return open.Generate(request, engine); });
           })
      .def("status", [](Owned<Controller>& self, std::size_t engine) {
        return Interruptibly(self, [engine](Controller& open) { return open.Status(engine); });
      });
}

}  // namespace layercast::python
