// A way in for a version. Open finds out what there is, and may wait for peers, but moves no bytes; Receive brings
// them. The functions of layercast/reload_source.h make sources, and each is in its source's file of this folder. Used
// by the stager, which knows nothing else of where versions come from.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "engine_side/reload/layout/kernel_layout.h"
#include "engine_side/reload/layout/layer_recipes.h"
#include "engine_side/reload/layout/prepared_layout.h"
#include "engine_side/reload/sources/config_check.h"
#include "engine_side/reload/sources/peer_session.h"
#include "engine_side/reload/sources/progress_teller.h"
#include "layercast/reload_source.h"
#include "src/session/fetch/fetch_sink.h"
#include "src/tensor/parts/merged_version.h"

namespace layercast {

// A path that can be read again (FromOrigin). Value.
struct Origin {
  CheckpointSource source;
  bool is_checkpoint_format = true;
};

// The rank that a source is opened for, and the reload. It refers to parts of the stager.
struct SourceContext {
  Module& model;
  const ParallelConfig& parallel;
  const QuantizationConfig& quantization;
  const LayerRecipes& recipes;
  const ReceiverOptions& options;
  MemoryResource& layer_memory;
  WorkerPool& pool;
  PeerSession& peers;
  ProgressTeller& progress;
  ReloadReport& report;         // Open fills in the channel, and what it knows of the version, as soon as it knows it
  const ReloadSource& request;  // the source is its `from`
  const KernelLayout* layout = nullptr;                 // of the model in full precision
  Origin origin{};                                      // what FromOrigin reads again; its path may be empty
  std::shared_ptr<const SourceCopy> base{};             // of what is served; its other owner is the receiver
  std::shared_ptr<const ManifestLayout> last_layout{};  // of the last whole version; its second owner is that
  std::uint64_t attempt = 0;
  std::stop_token stop{};  // once requested, Open and Receive soon end in kCancelled
};

// What there is. Value.
struct Opened {
  Manifest manifest;
  HeldParts parts{};
  std::string from{};                   // "publisher tcp://...", for errors; empty if this process's caller brings it
  std::vector<SourceConfig> configs{};  // what the source says of its model
  bool in_order = false;                // tensors come in the plan's order, so that layers may be processed directly
  bool snapshot = false;                // Receive brings the plan's schedule for snapshots; otherwise that for streams
  std::optional<Version> version{};     // empty: the version's name follows from the tensors that come
  std::optional<Origin> origin{};       // if it can be read again
};

// What Receive brings, and where to. Value; borrows all.
struct Wanted {
  const Manifest& manifest;        // as Open returned it
  const PreparedLayout& prepared;  // for that manifest
  const Schedule& schedule;        // prepared's, for snapshots or for streams
  FetchSink& sink;
};

// Resource; one thread only.
class VersionSource {
 public:
  enum class Form : std::uint8_t {
    kCheckpoint,  // names and shapes of a checkpoint, for which a plan is made
    kKernel,      // the engine's kernel tensors, derived ones included: nothing is made of them
    kParameters,  // the parameters of the model in full precision
  };

  virtual ~VersionSource() = default;
  // The form in which tensors come. Before Open, what the caller says of it.
  virtual Form form() const { return Form::kCheckpoint; }
  // Whether a trainer publishes it. What an engine loads first may be from elsewhere: its own checkpoint.
  virtual bool is_published() const { return false; }
  // Whether the weights need nobody's signature, or the source's session asks for it. Nobody signs files, stores, nor
  // what other engines have made of a version.
  virtual bool is_vouched_for() const { return is_published(); }

  // Everything that can be refused before a plan is made is refused here. Kernel tensors are those of the layout.
  virtual Opened Open(const SourceContext& context) = 0;
  // May be called once, after Open, perhaps much later.
  virtual void Receive(const SourceContext& context, const Wanted& wanted) = 0;
  // To be called when all bytes are staged. `staged` is their digest, `clean` that which they have without the
  // version's noise. Throws kCorrupt if the source has named another one.
  virtual void Check(const Digest& /*staged*/, const Digest& /*clean*/) const {}
  // LetGo ends what others have to keep alive for an open source. Reach takes it up again before Receive, and throws if
  // the source is no longer there, or no longer what was opened.
  virtual void LetGo(const SourceContext& /*context*/) {}
  virtual void Reach(const SourceContext& /*context*/) {}
};

}  // namespace layercast
