// The engine's side, one rank: takes new weights and writes them into the engine's captured buffers. What a foreign
// engine uses, and what the built-in one is served by.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "layercast/captured_buffers.h"
#include "layercast/export.h"
#include "layercast/memory.h"
#include "layercast/model/module.h"
#include "layercast/parallel.h"
#include "layercast/report.h"
#include "layercast/version.h"
#include "layercast/weights_iterator.h"

namespace layercast {

struct QuantizationConfig {
  // "none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block", "mxfp8", "nvfp4", "int8_per_channel".
  std::string recipe = "none";
  bool power_of_two_scales = false;  // fp8_per_block: scales rounded up to a power of two
  // Layers of a checkpoint on disk that are quantized already, and not as the recipe would have them or not so that
  // this rank's part can be cut out, are dequantized to the model's dtype and quantized anew; otherwise they are
  // refused.
  bool requantize = false;
};

// Where new weights come from. Value; moved into a reload.
struct LAYERCAST_PUBLIC ReloadSource {
  enum class Kind : std::uint8_t { kOrigin, kPath, kPublisher, kIterator };
  Kind kind = Kind::kOrigin;
  std::string location;               // folder, file or endpoint
  std::string lineage;                // of the version; empty from a publisher: any
  std::optional<std::uint64_t> step;  // empty from a publisher: the newest
  std::unique_ptr<WeightsIterator> iterator;
  std::vector<TensorSpec> specs;  // of the iterator's tensors; empty: those of the last load
  // False: names, shapes and dtypes are the captured buffers' own ("...qkv_proj.weight_scale"), this rank's, and are
  // copied straight; checked just as hard.
  bool is_checkpoint_format = true;
};

// Re-reads the path that was loaded last.
LAYERCAST_PUBLIC ReloadSource FromOrigin();
LAYERCAST_PUBLIC ReloadSource FromPath(std::string path, bool is_checkpoint_format = true);
LAYERCAST_PUBLIC ReloadSource FromPublisher(std::string endpoint, std::string lineage = "",
                                            std::optional<std::uint64_t> step = std::nullopt);
LAYERCAST_PUBLIC ReloadSource FromIterator(std::unique_ptr<WeightsIterator> iterator,
                                           std::vector<TensorSpec> specs = {}, bool is_checkpoint_format = true);

struct ReceiverOptions {
  std::string engine = "engine";  // its name, in handshakes and errors
  std::string channel;            // the data channel to use, or an error; empty: the best there is
  std::size_t threads = 2;        // for kernels and copies
  std::uint64_t chunk_bytes = 4U << 20;
  std::chrono::milliseconds timeout{300'000};     // of a whole reload
  std::chrono::milliseconds peer_timeout{5'000};  // silence that counts as the publisher's loss
  bool direct = true;  // let pieces go straight to staging where the recipe allows; false: five stages everywhere
  // Called while bytes arrive from a publisher, on the staging thread: received so far, and in all. May be empty.
  std::function<void(std::uint64_t bytes, std::uint64_t bytes_total)> on_progress;
  // They outlive the receiver. Null: host memory, ...
  MemoryResource* staging_memory = nullptr;  // one quantized copy, allocated at the first reload
  MemoryResource* layer_memory = nullptr;    // layer buffers and receive slots; ... reused until the reload ends
};

// Resource; one call at a time. A call that throws leaves the engine serving what it served.
class LAYERCAST_PUBLIC Receiver {
 public:
  // `model`: this rank's tree, on meta (ModelRegistry builds one from a config.json, or the host program does).
  Receiver(std::unique_ptr<Module> model, ParallelConfig parallel, const QuantizationConfig& quantization,
           CapturedBuffers captured, const ReceiverOptions& options = {});
  ~Receiver();
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  // Stage and Commit: for an engine of one rank. Throws Error; then the old version is served, untouched.
  ReloadReport ReloadWeights(ReloadSource source);

  // The two phases, for engines of several ranks: stage on all, then commit on all between two forward steps. `attempt`
  // grows with every reload of the engine and is the same on all its ranks (streams are walked once for all of them);
  // 0: counted here.
  void Stage(ReloadSource source, std::uint64_t attempt = 0);
  // The last chance to refuse: what Commit checks, before any rank has committed. Commit also does it.
  void Prepare();
  // Throws kFailedPrecondition when nothing is staged, or when the engine has moved a buffer.
  void Commit();
  // For publishers from now on: the channel to use, or an error; empty: the best there is.
  void SetChannel(std::string channel);
  // Of each reload from now on.
  void SetTimeout(std::chrono::milliseconds timeout);
  // Drops what is staged or half received. Does nothing when there is nothing.
  void Abort();
  // Reads the served bytes back and holds them against what was staged; after Commit, while the engine runs. Throws
  // kInternal when they differ.
  void VerifyServed();

  // What users of layerwise reload know, call by call.
  void record_metadata_for_reloading();
  void initialize_layerwise_reload(std::vector<TensorSpec> specs = {});
  // Any part of the weights, any number of times. Returns the names that were loaded.
  std::set<std::string> load_weights(WeightsIterator& weights);
  // Throws, naming every missing tensor, unless all of them came exactly once; else commits.
  ReloadReport finalize_layerwise_processing();

  const std::optional<Version>& version() const;  // served now
  const ReloadReport& report() const;             // of the latest reload, also of one that failed
  const CapturedBuffers& captured() const;
  // Bytes of the latest staged version's manifest (docs: MANIFEST.md): what RedoCommit needs after a crash.
  std::vector<std::byte> StagedManifest() const;
  // For a restarted rank whose staging memory survived: takes it as staged, whole, under that manifest.
  void AdoptStaged(const std::vector<std::byte>& manifest);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace layercast
