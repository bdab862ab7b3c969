// LoRA adapters on the engine's side, on one rank: loads them into slots, memory that the engine has captured once. The
// built-in engine uses it, and so can an engine of your own, whose layout shapes and strides describe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "layercast/captured_buffer.h"
#include "layercast/captured_buffers.h"
#include "layercast/dtype.h"
#include "layercast/export.h"
#include "layercast/parallel.h"
#include "layercast/receiver_options.h"
#include "layercast/report.h"
#include "layercast/version.h"

namespace layercast {

class Module;

// What slots are for. Value.
struct AdapterOptions {
  std::int64_t max_rank = 16;          // the largest rank of a module: 1 to 512
  std::vector<std::string> modules{};  // layers that adapters may change: paths, last segments or shards; empty: all
  DType dtype = DType::kBF16;          // of the factors: bf16, f16 or f32. Adapters of another dtype are cast
};

// One low-rank term of a layer's output: the layer's rows from `first_row` on get scale * B (A x). A fused layer has a
// term for each shard. Value.
struct AdapterPart {
  std::string layer;           // "model.layers.0.self_attn.qkv_proj"
  std::string shard;           // "q_proj"; empty: it is the layer's only one
  std::int64_t first_row = 0;  // in this rank's output of the layer
  CapturedBuffer a;            // [max_rank, columns], this rank's; an embedding's: [tokens, max_rank]
  CapturedBuffer b;            // [rows, max_rank]; of experts, both have one more dimension before: [experts, ...]
};

// The parts of one slot, whose buffers have names, dtypes and shapes, but no addresses yet. `model` is this rank's
// tree. Throws kInvalidArgument for options that are out of range or name no layer.
LAYERCAST_PUBLIC std::vector<AdapterPart> AdapterParts(const Module& model, const AdapterOptions& options);

// Where an adapter comes from: a PEFT folder, or a version that publishers have. Value.
struct AdapterSource {
  std::string path{};                     // a folder with adapter_config.json; empty: it comes from publishers
  std::vector<std::string> publishers{};  // their endpoints
  std::string name{};                     // of the adapter in the version; empty: the only one
  std::string lineage{};                  // empty: any
  std::optional<std::uint64_t> step{};    // empty: the newest
};

// What a slot holds once it is loaded. Value.
struct LoadedAdapter {
  // What the adapter adds to one part; a stack of experts has one for each of this rank's.
  struct Term {
    std::string a;  // name of the part's buffer a
    std::int64_t expert = 0;
    std::int32_t rank = 0;  // 0: it adds nothing
    float scale = 0.0F;     // multiplies B (A x), in fp32
  };

  std::string name;                     // in its version; empty: it came from a folder
  Version version;                      // of the adapter alone, by its own digest
  std::optional<Version> base{};        // that it was trained on, if it says so
  std::vector<Term> terms;              // in the order of the parts, then by expert
  std::uint64_t modules = 0;            // that the adapter has, on all ranks
  std::uint64_t elsewhere = 0;          // of them, on other stages of a pipeline
  std::vector<std::string> skipped{};   // tensors that change nothing: copies of base weights
  std::vector<std::string> warnings{};  // what PEFT would warn of
  std::vector<std::string> unused{};    // of target_modules and target_parameters, what no tensor is of
  std::uint64_t zero_modules = 0;       // whose B is all zeros, which is what an untrained adapter looks like
  Digest digest;                        // of the slot's bytes on this rank, with ranks and scales
  ReloadReport report{};
};

// Resource; one call at a time, except that Cancel may come at any time. A slot whose load failed holds nothing whole:
// it must not be computed with until a later load of it returned.
class LAYERCAST_PUBLIC AdapterReceiver {
 public:
  // `base` is this rank's tree of the model. `slots` has the buffers of each slot, under the names, dtypes and shapes
  // of AdapterParts, at addresses of their own, strided as the engine has them. With `receiver.relay` the rank relays
  // adapters: at that endpoint, which is no other receiver's, it serves what it takes until the slot is filled again.
  // Throws kInvalidArgument, naming buffer, expected and got, if they are not those, and whatever opening the relay
  // throws.
  AdapterReceiver(std::unique_ptr<Module> base, const ParallelConfig& parallel, const AdapterOptions& options,
                  std::vector<std::vector<CapturedBuffer>> slots, const ReceiverOptions& receiver = {});
  ~AdapterReceiver();
  AdapterReceiver(const AdapterReceiver&) = delete;
  AdapterReceiver& operator=(const AdapterReceiver&) = delete;

  // What the engine serves of the base. Copies of base weights that come with an adapter are compared with it, and an
  // adapter is refused whose copies differ. Without it a warning says that nobody compared them.
  void SetServed(CapturedBuffers served);
  // Fills the slot, in place, with what lies beyond the adapter's ranks set to zero, and reads it back. Buffers of
  // parts that the adapter does not have are left as they are. `attempt` grows with every load and is the same on all
  // ranks, as in Receiver::Stage; 0: the receiver counts. Throws Error, naming the module or tensor: kUnsupported for
  // what an adapter may be but is not served, kInvalidArgument for what does not fit the model, kNotFound for a version
  // that has no such adapter, and what a Receiver throws.
  LoadedAdapter Load(std::size_t slot, const AdapterSource& source, std::uint64_t attempt = 0);
  // Gives up that attempt and all before it: a load that is under way soon throws kCancelled. May be called from any
  // thread.
  void Cancel(std::uint64_t attempt);

 private:
  class LAYERCAST_HIDDEN Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace layercast
