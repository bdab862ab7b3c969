// What a reload did, on one rank. Returned by Receiver, and sent to controllers as JSON. Values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "layercast/export.h"
#include "layercast/noise/noise.h"
#include "layercast/tensor.h"
#include "layercast/transfer_cost.h"
#include "layercast/version.h"

namespace layercast {

// A stretch of a stream in which another layer was opened while one was incomplete. It ends when at most one is open.
struct OutOfOrderEpisode {
  std::string warning;               // as logged
  std::vector<std::string> layers;   // paths, in the order in which they were opened
  std::vector<std::string> awaited;  // tensors that the layers were waiting for
};

// A tensor that was cast from the dtype that it came in to the model's.
struct CastTensor {
  std::string name;
  DType from = DType::kF32;
  DType to = DType::kF32;
};

// A tensor that no layer takes, and the rule that says so.
struct SkippedName {
  std::string name;
  std::string rule;
};

// The keys of ReloadReport::stage_ms, in the order in which reports show them.
inline constexpr const char* kReloadStages[] = {"connect",        "plan",     "receive", "layer_buffer", "materialize",
                                                "fuse_and_shard", "quantize", "commit",  "verify"};

struct LAYERCAST_PUBLIC ReloadReport {
  Version version;
  std::string channel = "path";   // "shm", "zmq", "inproc", or several with commas between; without a publisher "path",
                                  // "iterator", "store" or "dummy"
  double gb_per_s = 0;            // received bytes / 1e9 / seconds of receiving; 0 when there was no channel
  double probed_gb_per_s = 0;     // what the channel could do when it was chosen; 0: not measured
  std::string channel_lane;       // what the library below the channel chose ("tcp/eth0"); empty: nothing to choose
  std::string channel_reason;     // why the channel was chosen
  std::string channel_warning;    // the likely cause, if the channel was far slower than when it was chosen; else empty
  std::string run_warning;        // what nobody could check, if several publishers name no run; else empty
  std::uint64_t bytes = 0;        // received
  std::uint64_t bytes_total = 0;  // what the schedule holds
  std::uint64_t layers = 0;       // processed
  std::uint64_t layers_kept = 0;  // left as they were, because a partial version has nothing of them
  std::uint64_t peak_buffered_bytes = 0;
  std::uint64_t staged_bytes = 0;          // the kernel tensors' bytes, which a staged copy or an undo log takes
  std::vector<PublisherShare> publishers;  // by the trainer's ranks; empty if the weights came from no publisher
  std::optional<DeltaChoice> delta;        // of a version of a publisher, if the receiver keeps its source
  // The layers that a partial version has nothing of. Those that differ only in their number share one text:
  // "model.layers.0-3,7.mlp.down_proj". If there would be more than 64 texts, the last one says how many layers remain.
  std::vector<std::string> kept;
  // Whether the source brought a configuration that was held against the engine's, and what differs, in words:
  // "publisher tcp://...: rope_theta: expected 1000000.0, got 10000.0". Unless ReloadSource::allow_config_change,
  // differences fail the reload.
  bool config_compared = false;
  std::vector<std::string> config_changes;
  std::vector<OutOfOrderEpisode> out_of_order;
  std::vector<CastTensor> cast;
  std::vector<SkippedName> skipped;
  std::vector<std::string> unused_rules;  // weight rules that touch no tensor of a whole version
  std::uint64_t elsewhere = 0;            // how many tensors other stages of the pipeline hold
  std::optional<Noise> noise;             // added to the norms; empty: the clean version
  // Milliseconds by stage, one of kReloadStages. "connect" has the probe of channels in it, "verify" digests and
  // reading back, and "commit" also the copying of finished tensors into the staged copy. "plan" is there if the layout
  // was new.
  std::map<std::string, double> stage_ms;
  double total_ms = 0;    // from the reload's beginning to its commit, plus reading back
  Digest served_digest;   // read back from the captured buffers after the commit
  Digest buffers_digest;  // of the table of addresses

  // One JSON object with these fields (docs/cli.md).
  std::string ToJson() const;
};

}  // namespace layercast
