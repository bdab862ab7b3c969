// Where a reload takes new weights from. Handed to a Receiver.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "layercast/checkpoint_source.h"
#include "layercast/export.h"
#include "layercast/tensor.h"
#include "layercast/version.h"
#include "layercast/weights_iterator.h"

namespace layercast {

// Where new weights come from. Value; moved into a reload.
struct LAYERCAST_PUBLIC ReloadSource {
  enum class Kind : std::uint8_t { kOrigin, kPath, kPublisher, kEngine, kIterator, kDummy };
  Kind kind = Kind::kOrigin;
  CheckpointSource checkpoint;         // kPath
  std::vector<std::string> endpoints;  // of a publisher, of all ranks of a sharded trainer, or of a rank that lends
  std::string lineage;                 // of the version; empty: any of the publisher's
  std::optional<std::uint64_t> step;   // of the version; empty: the publisher's newest
  std::unique_ptr<WeightsIterator> iterator;
  std::vector<TensorSpec> specs;  // of the iterator's tensors; empty: those of the last load
  std::uint64_t seed = 0;         // kDummy
  Version version;                // kEngine: what the lending engine serves
  Digest served_digest;           // kEngine: of the lending rank's buffers; this rank's must have it afterwards
  // False: the tensors are in kernel format, that is, they have the names, shapes and dtypes of this rank's captured
  // buffers ("...qkv_proj.weight_scale"). They are copied as they are, and checked just as strictly.
  bool is_checkpoint_format = true;
  // True: the tensors, in checkpoint format, may be a part of the model. A layer that gets none keeps the bytes that it
  // serves, and so its digests. A layer that gets some needs all of its tensors, on whatever rank they end up. The
  // engine then serves the whole under the name of this latest version.
  bool partial = false;
  // With `partial`: paths of layers ("model.layers.0.mlp.down_proj"), or of modules above them, that may be left out.
  // No others may. Empty: any may.
  std::vector<std::string> may_keep{};
  // kIterator: the text of the config.json of the model whose tensors come, or some of its fields; empty: not known.
  // Other sources bring their own (docs/checkpoints.md).
  std::string config{};
  // A source whose configuration differs from the engine's in what is computed is refused: its tensors may fit, but the
  // engine would compute wrongly with them. True: it is taken, and ReloadReport::config_changes lists what differs.
  bool allow_config_change = false;
};

// Re-reads the last whole checkpoint that was committed from a path.
LAYERCAST_PUBLIC ReloadSource FromOrigin();
LAYERCAST_PUBLIC ReloadSource FromPath(std::string path, bool is_checkpoint_format = true);
// Tensors are taken to be in kernel format if the load format is `sharded_state`, or `auto` finds it to be.
LAYERCAST_PUBLIC ReloadSource FromCheckpoint(CheckpointSource checkpoint);
LAYERCAST_PUBLIC ReloadSource FromPublisher(std::string endpoint, std::string lineage = "",
                                            std::optional<std::uint64_t> step = std::nullopt);
// For a sharded trainer: `endpoints`, in any order, are those of all its ranks, each of which publishes what it holds.
LAYERCAST_PUBLIC ReloadSource FromPublishers(std::vector<std::string> endpoints, std::string lineage = "",
                                             std::optional<std::uint64_t> step = std::nullopt);
// Takes the kernel tensors, derived ones included, of the same rank of another engine of the same layout, under the
// version that it serves. That engine's `lend_weights` call returns the arguments (engine_side/server/RPC.md).
LAYERCAST_PUBLIC ReloadSource FromEngineRank(std::string endpoint, Version version, Digest served_digest);
LAYERCAST_PUBLIC ReloadSource FromIterator(std::unique_ptr<WeightsIterator> iterator,
                                           std::vector<TensorSpec> specs = {}, bool is_checkpoint_format = true);

// Random weights of that seed, for an engine that starts without a checkpoint. The version is {"dummy", seed}.
LAYERCAST_PUBLIC ReloadSource FromDummy(std::uint64_t seed = 0);

}  // namespace layercast
