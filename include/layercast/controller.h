// Drives the engines of a run: tells them to take a version, and asks them for rollouts. Speaks to engines that
// `layercast serve` runs.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "layercast/checkpoint_source.h"
#include "layercast/error.h"
#include "layercast/export.h"
#include "layercast/version.h"

namespace layercast {

// Where engines take the new weights from: a publisher, another engine, or a folder that they can read. With none of
// these: the last whole checkpoint that they loaded.
struct ReloadRequest {
  std::string publisher{};           // its endpoint, or those of all ranks of a sharded trainer, separated by commas
  std::optional<Version> version{};  // of the publisher; empty: the newest. A digest, if it has one, is checked
  std::string engine{};              // endpoint of another engine of the same layout, which lends what it serves
  std::string weights_path{};
  std::string load_format = "auto";                              // of weights_path: docs/checkpoints.md
  std::vector<CheckpointSource::Secondary> secondary_weights{};  // beside weights_path
  bool is_checkpoint_format = true;                              // of weights_path
  bool partial = false;                 // the tensors may be a part of the model; other layers keep what they serve
  std::vector<std::string> may_keep{};  // with partial: layers, or modules above them; no others may be left out
  std::string channel{};                // forces "shm", "zmq", ...; not having it is an error. Empty: the fastest
  std::string pause_mode{};             // "wait", "abort" or "keep"; empty: the engine's own
  // All engines commit it, or none: each waits with the whole version staged, and stands still between two forward
  // steps until all of them do. Needs engines whose commit policy is "staged". No protocol can help if an engine dies
  // in the moment of the commit: the others then have the new version, and it has none until it is started again.
  bool all_or_none = false;
  std::chrono::milliseconds timeout{300'000};
};

// A pause is a lease: an engine that hears nothing more goes on by itself when it ends.
struct PauseRequest {
  std::string mode{};  // "wait", "abort" or "keep"; empty: the engine's own
  std::chrono::milliseconds lease{60'000};
};

// One engine's answer to a call. Value.
struct EngineOutcome {
  std::string endpoint{};
  bool ok = false;
  // Of a reload:
  std::optional<Version> version{};   // served now, after a failure the old one; empty: the engine did not say
  std::optional<Version> previous{};  // served before, whole; empty: none, or the engine did not say
  std::string report{};               // one JSON object (docs/cli.md); empty where nothing began
  // Of any call that failed:
  std::optional<Error> error{};  // in the engine's own words, if it had any
};

struct GenerateRequest {
  std::vector<std::vector<std::int32_t>> prompts{};
  std::int64_t max_new = 16;
  double temperature = 0;  // 0: greedy
  double top_p = 1;
  std::int64_t top_k = 0;
  std::uint64_t seed = 0;  // prompt i is sampled with seed + i
  std::vector<std::int32_t> stop_tokens{};
  std::chrono::milliseconds timeout{300'000};
};

// Value.
struct GeneratedSequence {
  struct Span {
    std::size_t start = 0;
    std::size_t end = 0;
    Version version;
  };
  std::vector<std::int32_t> tokens;  // the new ones alone
  std::vector<double> logprobs;      // natural logarithms, at temperature 1
  std::string finish;                // "length", "stop" or "aborted"
  std::vector<Span> spans;           // which version each token came from
};

// Resource; one thread only. Engines are told at the same time, and none waits for another, except with all_or_none.
class LAYERCAST_PUBLIC Controller {
 public:
  // Does not wait for the engines.
  explicit Controller(std::vector<std::string> endpoints);
  ~Controller();
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  const std::vector<std::string>& endpoints() const;

  // One outcome per engine, in the order of the endpoints. An engine that is gone or fails has its error there.
  std::vector<EngineOutcome> ReloadWeights(const ReloadRequest& request);

  // Takes effect between two forward steps. Returns when every engine's pause holds, at the latest when the lease ends.
  std::vector<EngineOutcome> Pause(const PauseRequest& request = {});
  std::vector<EngineOutcome> Resume();

  // Sequences of one engine, in the order of the prompts. Throws the engine's error.
  std::vector<GeneratedSequence> Generate(const GenerateRequest& request, std::size_t engine = 0);
  // One JSON object (docs/cli.md). Throws the engine's error.
  std::string Status(std::size_t engine = 0);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace layercast
