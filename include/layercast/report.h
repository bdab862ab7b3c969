// What a reload did, on one rank. Value.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "layercast/export.h"
#include "layercast/tensor.h"
#include "layercast/version.h"

namespace layercast {

// The stream opened another layer while one was incomplete. Ends when at most one layer is open.
struct OutOfOrderEpisode {
  std::string warning;               // as logged
  std::vector<std::string> layers;   // paths, in the order in which they were opened
  std::vector<std::string> awaited;  // tensors that the layers were waiting for
};

struct CastTensor {
  std::string name;
  DType from = DType::kF32;
  DType to = DType::kF32;
};

struct SkippedName {
  std::string name;
  std::string rule;
};

// What came from one publisher of a version.
struct PublisherShare {
  std::string endpoint;
  std::string channel;
  std::uint64_t bytes = 0;
  std::uint64_t relayed_bytes = 0;    // of `bytes`, those that came from other receivers (relays)
  std::vector<std::string> relays{};  // these receivers, in the order in which they were taken from
  // What the version cost its trainer. Of a snapshot: the call that copied, checked and offered it. Of a stream: all
  // that was done between the yields of its walk. 0: the publisher did not say.
  double held_up_seconds = 0;
  double core_seconds = 0;
  // What was computed in the trainer's process to serve this receiver, and others meanwhile: digests, magnitudes,
  // sending. 0: the publisher did not say.
  double serving_core_seconds = 0;
};

struct LAYERCAST_PUBLIC ReloadReport {
  Version version;
  std::string channel = "path";   // "shm", "zmq", "inproc", or several with commas between; "path", "iterator", "dummy"
                                  // without a publisher
  double gb_per_s = 0;            // received bytes / 1e9 / seconds of receiving; 0 when there was no channel
  double probed_gb_per_s = 0;     // what the channel could do when it was chosen; 0: not measured
  std::string channel_lane;       // what the library below it chose ("tcp/eth0"); empty: nothing to choose
  std::string channel_reason;     // why it was chosen
  std::string channel_warning;    // it was far slower than when it was chosen, and the likely cause; empty: it was not
  std::uint64_t bytes = 0;        // received
  std::uint64_t bytes_total = 0;  // that the schedule holds
  std::uint64_t layers = 0;       // processed
  std::uint64_t layers_kept = 0;  // left as they were, because a partial version has nothing of them
  std::uint64_t peak_buffered_bytes = 0;
  std::uint64_t staged_bytes = 0;          // of the kernel tensors: what a staged copy or an undo log takes
  std::vector<PublisherShare> publishers;  // by rank; empty without any
  // The layers that a partial version has nothing of, those that differ in their number alone as one:
  // "model.layers.0-3,7.mlp.down_proj". Of more than 64 such texts the last one says how many layers the others are.
  std::vector<std::string> kept;
  std::vector<OutOfOrderEpisode> out_of_order;
  std::vector<CastTensor> cast;
  std::vector<SkippedName> skipped;
  std::vector<std::string> unused_rules;  // weight rules that touch no tensor of a whole version
  std::uint64_t elsewhere = 0;            // tensors that other stages of the pipeline hold
  // connect (with the probe of channels), receive, layer_buffer, materialize, fuse_and_shard, quantize, verify
  // (digests, and reading back), commit (staging too: copying what was made into the staged copy); plan where the
  // layout was new.
  std::map<std::string, double> stage_ms;
  double total_ms = 0;    // from the beginning to the commit, plus reading back
  Digest served_digest;   // read back from the captured buffers after the commit
  Digest buffers_digest;  // of the table of addresses

  // One JSON object with these fields (docs/cli.md).
  std::string ToJson() const;
};

}  // namespace layercast
