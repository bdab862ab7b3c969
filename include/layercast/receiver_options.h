// How a Receiver works: its quantization, its channels, deadlines and memory.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "layercast/commit_policy.h"
#include "layercast/keys/key_options.h"
#include "layercast/memory.h"
#include "layercast/noise/noise.h"
#include "layercast/progress.h"
#include "layercast/transfer_cost.h"
#include "layercast/weight_layout.h"

namespace layercast {

class TakerTally;     // internal
class TraceRecorder;  // internal

// How the engine's weights are quantized. Value.
struct QuantizationConfig {
  // "none", or "fp8_per_channel" or another one of engine_side/quant/RECIPES.md; or "checkpoint": each layer keeps the
  // form that config.json says it is in, and stays in full precision if it says none.
  std::string recipe = "none";
  bool power_of_two_scales = false;  // for fp8_per_block: scales are rounded up to powers of two
  // What becomes of a layer that a checkpoint on disk holds quantized, if its form is not the recipe's or this rank's
  // part cannot be cut out of it. True: it is dequantized to the model's dtype and quantized anew. False: it is
  // refused.
  bool requantize = false;
  WeightLayout layout{};  // of the engine's own memory only: what is published, exported or lent does not have it
};

// Value; the memory resources are borrowed.
struct ReceiverOptions {
  // The engine's name, in handshakes and errors. All its ranks have the same, and no other engine: a publisher begins a
  // stream when as many ranks of one name have asked for it as the engine has.
  std::string engine = "engine";
  std::string channel{};    // forces a data channel; a peer without it is an error. Empty: the fastest
  std::size_t threads = 2;  // for kernels and copies
  std::uint64_t chunk_bytes = 4U << 20;
  // The most bytes that incomplete layers may hold; 0: no bound. A stream whose order would exceed it fails with
  // kResourceExhausted, naming the layers that hold the memory. A snapshot comes in layer order, and needs the bytes of
  // one layer.
  std::uint64_t buffer_limit = 0;
  // If not empty, this rank relays: at this endpoint ("tcp://10.0.0.5:0") it serves what it takes of a snapshot to
  // receivers of the same schedule. They are told this address as it stands, except that a port of 0 picks one. The
  // rank keeps the source bytes of its share of a version, in host memory, until the next reload; an AdapterReceiver
  // keeps those of a slot until it is filled again.
  std::string relay{};
  // Keeps the source bytes of this rank's share of the version that it serves, in host memory, if it came as a
  // snapshot. The next version may then come as what changed since then, where its publisher still keeps that
  // (docs/delta.md). While a version comes, there are two of them. Not beside a relay.
  bool keep_source = false;
  DeltaUse delta = DeltaUse::kAuto;  // with keep_source
  // Notes who takes what from the relay, for the ranks of `layercast serve`. Null: nobody does. Must outlive the
  // receiver.
  TakerTally* relay_takers = nullptr;
  // Records what a reload does, for the ranks of `layercast serve`. Null: nobody does. Must outlive the receiver.
  TraceRecorder* trace = nullptr;
  // By which keys publishers and relays admit this rank, and it admits receivers where it relays.
  KeyOptions keys{};
  std::chrono::milliseconds timeout{300'000};     // for a whole reload
  std::chrono::milliseconds peer_timeout{5'000};  // a publisher that is silent for so long counts as lost
  CommitPolicy commit = CommitPolicy::kStaged;
  // What becomes of noise that versions carry. kPerEngine: the FNV-1a hash of `engine` is mixed into the seed.
  NoiseUse noise = NoiseUse::kShared;
  // True: pieces go straight to their kernel tensors where the recipe allows it. False: all five stages everywhere.
  bool direct = true;
  // Told how far a reload has come: whenever it enters a stage; while bytes come, for each further hundredth of them
  // and ten times a second; and once all have come and all layers are whole. Called on the thread that called the
  // receiver, within that call and under no lock. Bytes wait meanwhile. It may call Cancel and attempt of the receiver,
  // and nothing else of it. What it throws is logged, and it is then told no more of that reload, which goes on. May be
  // empty.
  std::function<void(const ReloadProgress&)> on_progress{};
  // Holds what the commit policy keeps: the staged copy, the undo log, a byte for each buffer. (The copies of buffers
  // on a device are in device memory and in pinned memory instead.) Allocated at the first reload. An engine whose
  // weights outlive its processes gives memory that does so too, and hands in the same memory again after a restart.
  // Null: host memory. Must outlive the receiver.
  MemoryResource* staging_memory = nullptr;
  // Holds the norms' weights as they were published, where they are served with noise. Taken at the first reload; an
  // engine whose weights outlive its processes gives memory that does so too. Null: host memory, taken when there is
  // noise. Must outlive the receiver.
  MemoryResource* norm_memory = nullptr;
  // Holds layer buffers and receive slots. Null: host memory that is reused until the reload ends. Must outlive the
  // receiver.
  MemoryResource* layer_memory = nullptr;
};

}  // namespace layercast
