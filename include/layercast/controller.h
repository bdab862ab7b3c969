// Who drives the engines of a run: tells them to take a version, and asks them for rollouts. Speaks to engines as
// `layercast serve` starts them.
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

// Where engines take the new weights from: a publisher, a folder that they can read, or with neither the checkpoint
// that they came from.
struct ReloadRequest {
  std::string publisher{};  // its endpoint, or those of all that have a version between them, with commas between
  std::optional<Version> version{};  // of the publisher; empty: the newest. A digest, if it has one, is checked
  std::string engine{};              // endpoint of another engine of the same layout, which lends what it serves
  std::string weights_path{};
  std::string load_format = "auto";                              // of weights_path: docs/checkpoints.md
  std::vector<CheckpointSource::Secondary> secondary_weights{};  // beside weights_path
  bool is_checkpoint_format = true;                              // of weights_path
  bool partial = false;      // checkpoint tensors of a part of the model: other layers keep what they serve
  std::string channel{};     // "shm", "zmq", ..., or an error; empty: the fastest
  std::string pause_mode{};  // "wait", "abort" or "keep"; empty: the engine's own
  // All engines commit it, or none: each waits with the whole version staged, and stands still between two forward
  // steps until all of them do. Needs engines whose commit policy is "staged". Nothing can help where an engine dies in
  // the moment of the commit: the others have the new version then, and it has none until it is started again.
  bool all_or_none = false;
  std::chrono::milliseconds timeout{300'000};
};

// A lease: an engine that hears no more goes on by itself when it is over.
struct PauseRequest {
  std::string mode{};  // "wait", "abort" or "keep"; empty: the engine's own
  std::chrono::milliseconds lease{60'000};
};

// What one engine made of a call. Value.
struct EngineOutcome {
  std::string endpoint{};
  bool ok = false;
  // Of a reload:
  std::optional<Version> version{};  // served now: after a failure the old one; empty if the engine did not say
  std::string report{};              // one JSON object (docs/cli.md); empty where nothing began
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

// Resource; one thread only. Engines are told at the same time, and none waits for another, unless that is asked for.
class LAYERCAST_PUBLIC Controller {
 public:
  // Does not wait for the engines.
  explicit Controller(std::vector<std::string> endpoints);
  ~Controller();
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  const std::vector<std::string>& endpoints() const;

  // One outcome per engine, in the order of the endpoints: an engine that is gone or fails says so in its own.
  std::vector<EngineOutcome> ReloadWeights(const ReloadRequest& request);

  // Between two forward steps; an outcome is there when that engine's pause holds, at the latest at the lease's end.
  std::vector<EngineOutcome> Pause(const PauseRequest& request = {});
  std::vector<EngineOutcome> Resume();

  // By one engine, in the order of the prompts. Throws its error.
  std::vector<GeneratedSequence> Generate(const GenerateRequest& request, std::size_t engine = 0);
  // One JSON object (docs/cli.md). Throws the engine's error.
  std::string Status(std::size_t engine = 0);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace layercast
