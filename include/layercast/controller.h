// Drives the engines of a run: tells them to take a version, and asks them for rollouts. Used by training loops and by
// `layercast reload`; the engines are those that `layercast serve` runs.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "layercast/checkpoint_source.h"
#include "layercast/error.h"
#include "layercast/export.h"
#include "layercast/keys/key_options.h"
#include "layercast/progress.h"
#include "layercast/version.h"

namespace layercast {

class ReloadTrace;  // internal

// Where engines take the new weights from: a publisher, a store, another engine, or a folder that they can read. If
// none of these is set, each engine re-reads the last whole checkpoint that it loaded. Value.
struct ReloadRequest {
  std::string publisher{};  // its endpoint, or those of all ranks of a sharded trainer, separated by commas
  std::string store{};      // the folder of a durable store, which the engines can read
  // Which of the publisher's, or of the store's; empty: the newest. Its digest, if given, is checked.
  std::optional<Version> version{};
  std::string engine{};   // endpoint of another engine of the same layout, which lends what it serves
  bool previous = false;  // what the engine served before, which it keeps (serve --keep-previous); no other source then
  std::string weights_path{};
  std::string load_format = "auto";                              // of weights_path: docs/checkpoints.md
  std::vector<CheckpointSource::Secondary> secondary_weights{};  // read in addition to weights_path
  bool is_checkpoint_format = true;                              // of weights_path; false: FromPath says what it is
  bool partial = false;                 // the tensors may be a part of the model; other layers keep what they serve
  std::vector<std::string> may_keep{};  // with partial: layers, or modules above them; no others may be left out
  bool clean = false;                   // without the noise that the version carries: ReloadSource
  bool allow_config_change = false;     // takes weights whose configuration differs from the engine's: ReloadSource
  // Of a publisher's version, or of the other engine: the LoRA adapters that are committed with the base, in one
  // moment;
  // {"*"}: all that it has. They keep the names that they have there.
  std::vector<std::string> adapters{};
  // False: a base is refused that an adapter which stays says it was not trained on.
  bool keep_adapters = false;
  std::string channel{};     // forces "shm", "zmq", ...; an engine without it fails. Empty: the fastest
  std::string pause_mode{};  // "wait", "abort" or "keep"; empty: the engine's own
  // True: either all engines commit the version, or none does. Each waits with the whole version staged, and stands
  // still between two forward steps until all of them do. Needs engines whose commit policy is "staged". No protocol
  // can help if an engine dies in the moment of the commit: the others then have the new version, and it has none until
  // it is started again.
  bool all_or_none = false;
  // Above 0: the version is on trial. An engine goes back by itself to what it served before, unless Promote comes
  // within that time. It refuses one that brings adapters, or if there is no way back: what it keeps
  // (serve --keep-previous), or the publisher `way_back`, where it can take again what it served.
  std::chrono::milliseconds trial{0};
  std::string way_back{};  // an endpoint, as `publisher`
  // Told how far each engine has come: what the engine says of the reload that it is at, five times a second, and once
  // more when the engine has succeeded, with everything in it. Called on the thread that called ReloadWeights, within
  // that call and under no lock. The engines do not wait for it. What it throws is logged, and it is then told no more
  // of that reload, which goes on. May be empty.
  std::function<void(const EngineProgress&)> on_progress{};
  // Not empty: a timeline of the reload is written to this file, also of one that fails, for Perfetto or Chrome
  // (docs/operations.md): this controller, the engines, their ranks and publishers, by one clock. ReloadWeights throws
  // kInvalidArgument, before any engine is asked, if it cannot be written.
  std::string trace{};
  // Takes the same, as the body of a POST to /v1/traces of a collector of OpenTelemetry's (OTLP, in JSON). Engines and
  // publishers then send nothing themselves of this reload. Called at the end of ReloadWeights. May be empty.
  std::function<void(std::string otlp)> on_trace{};
  std::string traceparent{};  // W3C's: what the reload is a part of. Empty: it is a trace of its own
  // For the whole call. With all_or_none, for all that comes before the commit: once that is decided, it is waited for
  // up to 10 minutes more.
  std::chrono::milliseconds timeout{300'000};
};

// A LoRA adapter that engines are to load under a name, or, if they have one of that name, to take a new version of.
// Value.
struct AdapterRequest {
  std::string name;                  // by which GenerateRequest asks for it
  std::string path{};                // a PEFT folder that the engines can read; empty: it comes from a publisher
  std::string publisher{};           // its endpoint, or those of all ranks of a sharded trainer, separated by commas
  std::optional<Version> version{};  // which of the publisher's; empty: the newest. Its digest, if given, is checked
  std::string adapter{};             // what the version calls it; empty: the only one that the version has
  bool pin = false;                  // it is never evicted for another one
  bool all_or_none = false;          // as ReloadRequest's. Engines do not stand still for it
  std::chrono::milliseconds timeout{300'000};
};

// A pause is a lease: an engine that hears nothing more resumes by itself when the lease ends. Value.
struct PauseRequest {
  std::string mode{};  // "wait", "abort" or "keep"; empty: the engine's own
  std::chrono::milliseconds lease{60'000};
};

// Engines that are to lend memory back, every address staying as it is, while a trainer has the machine. Value.
struct SleepRequest {
  // Of the weights. 1: what is served is kept, in host memory, and served again after WakeUp. 2: it is discarded, and
  // the next reload of a whole version fills the memory.
  int level = 1;
  std::vector<std::string> tags{};  // some of "weights" and "kv_cache"; empty: both
  std::string pause_mode = "wait";  // or "abort": what becomes of sequences under way
  std::chrono::milliseconds timeout{300'000};
};

// One engine's answer to a call. Value.
struct EngineOutcome {
  std::string endpoint{};
  bool ok = false;
  // Set by a reload:
  std::optional<Version> version{};   // served now, after a failure the old one; empty: the engine did not say
  std::optional<Version> previous{};  // served before, whole; empty: none, or the engine did not say
  std::string report{};               // one JSON object (docs/cli.md); empty if no reload began
  // Set by Sleep:
  std::uint64_t given_back = 0;  // bytes, of all ranks
  // Set by any call that failed:
  std::optional<Error> error{};  // in the engine's own words, if it had any
};

// Value.
struct GenerateRequest {
  std::vector<std::vector<std::int32_t>> prompts{};
  std::int64_t max_new = 16;
  double temperature = 0;  // 0: greedy
  double top_p = 1;
  std::int64_t top_k = 0;
  std::uint64_t seed = 0;                   // prompt i is sampled with seed + i
  std::vector<std::int32_t> stop_tokens{};  // a sequence ends after one of these
  std::string adapter{};                    // a LoRA adapter that the engine has; empty: the base alone
  // Set: an engine that serves an earlier step than this one, or another lineage, refuses with kFailedPrecondition.
  std::optional<Version> least_version{};
  // Set: an engine that serves a version so many steps behind the newest of its publisher refuses with
  // kFailedPrecondition, and with kUnavailable if it has not heard the publisher within `heard_within`. Not set: as
  // `serve --max-staleness` says.
  std::optional<std::uint64_t> max_staleness{};
  std::optional<std::chrono::milliseconds> heard_within{};  // of max_staleness; not set: 30 s
  bool ignore_eos = false;  // false: it also ends after an `eos_token_id` of the model's files
  std::chrono::milliseconds timeout{300'000};
};

// Value.
struct GeneratedSequence {
  struct Span {
    std::size_t start = 0;
    std::size_t end = 0;
    Version version;                   // the base's
    std::optional<Version> adapter{};  // the adapter's, if the sequence has one
  };
  std::vector<std::int32_t> tokens;  // without the prompt's
  std::vector<double> logprobs;      // natural logarithms, at temperature 1
  std::string finish;                // "length", "stop" or "aborted"
  std::vector<Span> spans;           // the version that tokens [start, end) came from
};

// A version that some engines take first, on trial, and the others once it is promoted. Value.
struct CanaryRequest {
  std::vector<std::string> canaries{};  // some of the controller's engines
  // Which version, from where. Neither `all_or_none` nor `trial` is heeded: the canaries take it each for itself, and
  // the others all or none of them. Nor is `trace`, which is of one reload.
  ReloadRequest reload{};
  // How long the canaries wait for a verdict once all of them serve the version, before they go back by themselves.
  std::chrono::milliseconds trial{300'000};
};

// A canary that is under way. Resource; one thread only, but for Cancel. If nobody has decided when it is destroyed,
// the canaries go back; if its process dies, they do so by themselves when the trial is over.
class LAYERCAST_PUBLIC CanaryReload {
 public:
  CanaryReload(CanaryReload&&) noexcept;
  CanaryReload& operator=(CanaryReload&&) = delete;
  ~CanaryReload();

  const Version& version() const;                      // that is on trial, by its digest
  const std::vector<EngineOutcome>& canaries() const;  // how they took it
  const std::vector<std::string>& others() const;      // endpoints of the engines that serve what they did
  // Waits so long at most for what others say (`layercast promote`, `layercast rollback --canary`): true, a canary was
  // promoted; false, one is on trial no more. Nullopt: nobody has said anything. Throws kCancelled, and the error of a
  // canary that is gone.
  std::optional<bool> Await(std::chrono::milliseconds most);
  // Promotes the canaries, then has all other engines take exactly this version, or none of them. If they do not, the
  // canaries go back. Returns an outcome for each of the controller's engines, in their order.
  std::vector<EngineOutcome> Promote();
  // Has the canaries serve again what they did. Returns an outcome for each.
  std::vector<EngineOutcome> RollBack();
  // Gives up Await or Promote; from any thread. What Promote had begun is undone as if an engine had failed.
  void Cancel();

 private:
  friend class Controller;
  class LAYERCAST_HIDDEN Impl;
  explicit CanaryReload(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Resource; one thread only, but for Cancel. A call goes to all engines at the same time. Only with
// ReloadRequest::all_or_none does one engine wait for another.
class LAYERCAST_PUBLIC Controller {
 public:
  // Does not wait for the engines. Throws kInvalidArgument if there is none, or one is named twice.
  // `keys`: as engines admit them. Throws what is wrong with these, too.
  explicit Controller(std::vector<std::string> endpoints, const KeyOptions& keys = {});
  ~Controller();
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  const std::vector<std::string>& endpoints() const;

  // Returns one outcome per engine, in the order of the endpoints. The error of an engine that is gone or fails is in
  // its outcome, and is not thrown. With all_or_none, throws kInvalidArgument, before any engine is asked, if two
  // endpoints are of one engine.
  std::vector<EngineOutcome> ReloadWeights(const ReloadRequest& request);

  // Has the canaries take a version on trial. Throws, with every engine serving what it did: kInvalidArgument if a
  // canary is none of the engines; kFailedPrecondition, naming the engine, if one has no way back, or the others could
  // not take it all or none; and the error of a canary that failed. A publisher keeps the version meanwhile.
  CanaryReload Canary(const CanaryRequest& request);
  // Decide about what is on trial on each of the engines (ReloadRequest::trial): it stays, or the engine goes back.
  // With a version, only if that one is. Revoke also undoes a promotion, as long as that version is served.
  std::vector<EngineOutcome> Promote(const std::optional<Version>& version = {},
                                     std::chrono::milliseconds timeout = std::chrono::milliseconds(300'000));
  std::vector<EngineOutcome> Revoke(const std::optional<Version>& version = {},
                                    std::chrono::milliseconds timeout = std::chrono::milliseconds(300'000));

  // The next three are about LoRA adapters; engines have slots for some (`serve --adapter-slots`). An outcome's
  // versions are the adapter's: what its name means now, and what it meant before. Unload takes the name away at once;
  // sequences that use the adapter end with it. Pin exempts it from eviction, or no longer does.
  std::vector<EngineOutcome> LoadAdapter(const AdapterRequest& request);
  std::vector<EngineOutcome> UnloadAdapter(const std::string& name);
  std::vector<EngineOutcome> PinAdapter(const std::string& name, bool pin = true);
  // The adapters of the engine with that index, as one JSON object (docs/cli.md). Throws the engine's error.
  std::string ListAdapters(std::size_t engine = 0);

  // A pause takes effect between two forward steps. Pause returns when every engine's pause holds, at the latest when
  // the lease ends.
  std::vector<EngineOutcome> Pause(const PauseRequest& request = {});
  std::vector<EngineOutcome> Resume();

  // Engines that sleep refuse all else but status and reloads, until WakeUp. A reload wakes up weights that were
  // discarded. Both may be called again for what sleeps, or is awake, already. `tags` as SleepRequest's. An engine that
  // cannot wake up, for want of memory, sleeps on.
  std::vector<EngineOutcome> Sleep(const SleepRequest& request = {});
  std::vector<EngineOutcome> WakeUp(const std::vector<std::string>& tags = {},
                                    std::chrono::milliseconds timeout = std::chrono::milliseconds(300'000));

  // Asks the engine with that index among the endpoints. The sequences are in the order of the prompts. Throws the
  // engine's error.
  std::vector<GeneratedSequence> Generate(const GenerateRequest& request, std::size_t engine = 0);
  // Waits until that engine serves `least` or a later step of its lineage. Throws kDeadlineExceeded, with what it
  // serves.
  void WaitForVersion(const Version& least, std::chrono::milliseconds timeout, std::size_t engine = 0);
  // The status of the engine with that index, as one JSON object (docs/cli.md). Throws the engine's error.
  std::string Status(std::size_t engine = 0);

  // Gives up the call that is under way, if there is one: within a fifth of a second it throws kCancelled, or returns
  // outcomes that have it as their errors. Engines that have begun to reload go on, or, with all_or_none, abort; a
  // commit that all of them are to make is waited for. May be called from any thread.
  void Cancel();

 private:
  class LAYERCAST_HIDDEN Impl;
  const KeyOptions& key_options() const;
  LAYERCAST_HIDDEN std::vector<EngineOutcome> ReloadTraced(const ReloadRequest& request, ReloadTrace& trace);
  std::stop_token BeginCall();
  std::unique_ptr<Impl> impl_;
};

}  // namespace layercast
