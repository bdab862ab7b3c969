// What the tests of the pipeline load: a small decoder with every kind of layer, its weights, an engine's memory with
// canary bytes around every buffer, and a slow, obvious way to the bytes that must be served in the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine_side/plan/piece.h"
#include "engine_side/reload/commit/staging.h"
#include "engine_side/reload/pipeline/pipeline.h"
#include "engine_side/reload/work/host_work.h"
#include "layercast/captured_buffers.h"
#include "layercast/model/held_scales.h"
#include "layercast/model/module.h"
#include "layercast/parallel.h"
#include "src/base/memory/counting_memory.h"
#include "tests/support/error_of.h"
#include "tests/support/test_experts.h"
#include "tests/support/test_weights.h"

namespace layercast::testing {

// Threads share the work out in the same way whatever the recipe, the form and the rank: where all of them take minutes
// under ThreadSanitizer, it sees some.
#ifdef __SANITIZE_THREAD__
constexpr bool kUnderThreadSanitizer = true;
#else
constexpr bool kUnderThreadSanitizer = false;
#endif
// So is memory, where what differs is only which kernel a rank's rows go through.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kUnderSanitizer = true;
#else
constexpr bool kUnderSanitizer = kUnderThreadSanitizer;
#endif

struct RigOptions {
  std::string recipe = "none";
  ParallelConfig parallel{};
  DType dtype = DType::kBF16;   // of the model
  DType source = DType::kBF16;  // of the weights
  bool tied = false;
  std::int64_t layers = 1;
  bool draft = false;  // with an EAGLE of one layer beside it
  // Of 65 words padded to 128, four ranks have 32, 32, 1 and 0: the last two are mostly and only padding.
  std::int64_t vocab = 65;
  std::string failpoints{};
  bool requantize = false;
  // Instead of the decoder: a router, experts whose tensors come in this form, and a norm.
  std::optional<ExpertForm> experts{};
  SourceTransforms transforms{};  // of the decoder
  // Versions have all that is held; of caches those of odd seeds alone.
  HeldScales scales{};
  bool keep_source = false;  // the receiver keeps its source, and takes deltas wherever it can
};

// A Qwen2 decoder, 128 wide: 8 heads and 4 key/value heads of 32, biases, a gated MLP of 256. Or a layer of 5 experts,
// as wide.
std::unique_ptr<Module> RigModel(const RigOptions& options);
// Its checkpoint, in the order of the layers. Different seeds, different values.
Weights RigWeights(const RigOptions& options, std::uint32_t seed = 1);
std::size_t IndexOf(const Weights& weights, const std::string& name);

using ServedBytes = std::map<std::string, std::vector<std::byte>>;

// Memory of an engine, each of its buffers with canaries on both sides. Resource; one thread only.
class EngineMemory {
 public:
  EngineMemory(const Module& model, const Recipe& recipe);
  CapturedBuffers Adopt() const {
    return CapturedBuffers::Adopt(table_, [this] { return table_; });
  }
  bool CanariesAreAlive() const;
  ServedBytes Served() const;
  std::vector<CapturedBuffer>& table() { return table_; }  // to be moved, by a test of that

 private:
  std::vector<std::byte> memory_;
  std::vector<bool> owned_;  // by byte: part of a buffer
  std::vector<CapturedBuffer> table_;
};

// Everything that a pipeline needs, for tests that drive it piece by piece. Memory comes filled with `fill`.
struct Rig {
  explicit Rig(const RigOptions& options = {}, std::byte fill = std::byte{0xA5}, const Weights* given = nullptr);

  PipelineParts parts();
  std::vector<Piece> Pieces(std::uint64_t chunk_bytes = 4U << 20) const;
  RegionView ViewOf(const Piece& piece) const;
  void GiveAmax(AmaxTable& amax);  // what the recipe asks for beyond the manifest
  // By name of the tensor that a placement takes from, and of a layer by its path.
  std::uint32_t PlacementOf(const std::string& tensor) const;
  std::uint32_t LayerOf(const std::string& path) const;
  Piece Whole(const std::string& tensor) const;
  ServedBytes Staged() const;

  RigOptions options;
  Weights weights;
  WorkerPool pool{1};
  HostMemory host;
  FillingMemory filling;
  CountingMemory memory{filling};
  HostWork work{memory, pool};
  std::unique_ptr<Place> place = MakeHostPlace(pool, filling, memory);
  FailPoints failpoints{options.failpoints};
  Manifest manifest;
  std::unique_ptr<const Recipe> recipe;
  std::unique_ptr<Module> model;
  LoadPlan plan;
  EngineMemory engine;
  CapturedBuffers captured;
  KernelLayout layout;
  Staging staging;
};

// What must be served: tensors copied by the module tree's own `load_weights`, quantized element by element.
ServedBytes ServedSlowly(const RigOptions& options, const Weights& weights);

// Names of the tensors that differ, and of those that are on one side alone.
std::vector<std::string> Differences(const ServedBytes& a, const ServedBytes& b);

}  // namespace layercast::testing
