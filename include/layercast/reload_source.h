// Where a reload takes new weights from. Handed to a Receiver.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "layercast/checkpoint_source.h"
#include "layercast/export.h"
#include "layercast/noise/noise.h"
#include "layercast/tensor.h"
#include "layercast/version.h"
#include "layercast/weights_iterator.h"

namespace layercast {

class VersionSource;

// Where new weights come from, and what of them is taken. The functions below make one. Resource; moved into a reload.
struct LAYERCAST_PUBLIC ReloadSource {
  ReloadSource();  // as FromOrigin
  explicit ReloadSource(std::unique_ptr<VersionSource> from);
  ReloadSource(ReloadSource&&) noexcept;
  ReloadSource& operator=(ReloadSource&&) noexcept;
  ~ReloadSource();

  std::unique_ptr<VersionSource> from;  // never null, unless this was moved from
  // True: the tensors, in checkpoint format, may be a part of the model. A layer that gets none keeps the bytes that it
  // serves, and so its digests. A layer that gets some needs all of its tensors, on whatever rank they end up. The
  // engine then serves the whole under the name of this latest version.
  bool partial = false;
  // With `partial`: paths of layers ("model.layers.0.mlp.down_proj"), or of modules above them, that may be left out.
  // No others may. Empty: any may.
  std::vector<std::string> may_keep{};
  // Of an iterator: the text of the config.json of the model whose tensors come, or some of its fields; empty: not
  // known. Other sources bring their own (docs/checkpoints.md).
  std::string config{};
  // A source whose configuration differs from the engine's in what is computed is refused: its tensors may fit, but the
  // engine would compute wrongly with them. True: it is taken, and ReloadReport::config_changes lists what differs.
  bool allow_config_change = false;
  // If given, it is added to the norms instead of what the version says, whatever ReceiverOptions::noise is; sigma 0:
  // the clean version is installed.
  std::optional<Noise> noise{};
};

// Re-reads the last whole checkpoint that was committed from a path.
LAYERCAST_PUBLIC ReloadSource FromOrigin();
// `is_checkpoint_format`, here and below. False: the tensors are in kernel format, that is, they have the names, shapes
// and dtypes of this rank's captured buffers ("...qkv_proj.weight_scale"). They are copied as they are, and checked
// just as strictly.
LAYERCAST_PUBLIC ReloadSource FromPath(std::string path, bool is_checkpoint_format = true);
// Tensors are also taken to be in kernel format if the load format is `sharded_state`, or `auto` finds it to be.
LAYERCAST_PUBLIC ReloadSource FromCheckpoint(CheckpointSource checkpoint, bool is_checkpoint_format = true);
// Of `lineage`, or any of the publisher's if that is empty; `step`, or the publisher's newest. With `digest` the
// version that has it, also where a later run of the lineage has taken its step over.
LAYERCAST_PUBLIC ReloadSource FromPublisher(std::string endpoint, std::string lineage = "",
                                            std::optional<std::uint64_t> step = std::nullopt, Digest digest = {});
// For a sharded trainer: `endpoints`, in any order, are those of all its ranks, each of which publishes what it holds.
LAYERCAST_PUBLIC ReloadSource FromPublishers(std::vector<std::string> endpoints, std::string lineage = "",
                                             std::optional<std::uint64_t> step = std::nullopt);
// A version of a durable store (docs/versions.md), by the path of its folder; no publisher has to live. Which one is
// said as to a publisher.
LAYERCAST_PUBLIC ReloadSource FromStore(std::string directory, std::string lineage = "",
                                        std::optional<std::uint64_t> step = std::nullopt, Digest digest = {});
// Takes the kernel tensors, derived ones included, of the same rank of another engine of the same layout, under the
// version that it serves. That engine's `lend_weights` call returns the arguments (engine_side/server/RPC.md). This
// rank's buffers must have `served_digest` afterwards.
LAYERCAST_PUBLIC ReloadSource FromEngineRank(std::string endpoint, Version version, Digest served_digest);
// `specs` are of the iterator's tensors; empty: those of the last load.
LAYERCAST_PUBLIC ReloadSource FromIterator(std::unique_ptr<WeightsIterator> iterator,
                                           std::vector<TensorSpec> specs = {}, bool is_checkpoint_format = true);

// Random weights of that seed, for an engine that starts without a checkpoint. The version is {"dummy", seed}.
LAYERCAST_PUBLIC ReloadSource FromDummy(std::uint64_t seed = 0);

}  // namespace layercast
