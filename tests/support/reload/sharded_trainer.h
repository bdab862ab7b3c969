// A trainer whose ranks each hold a part of the weights, in several layouts, for tests of those who put them together.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "layercast/model/placement.h"
#include "layercast/publisher.h"
#include "tests/support/reload/receiver_rig.h"

namespace layercast::testing {

// The parts of a tensor that a trainer's rank holds, if any.
using ShardLayout = std::function<std::vector<Box>(const TensorSpec& spec, int rank, int ranks)>;

std::vector<Box> RowsOf(const TensorSpec& spec, int rank, int ranks);  // as FSDP2 shards
// As Megatron does: layers are cut along what they write, or along what they read; the rest is alike on all ranks, and
// the first publishes it.
std::vector<Box> ColumnsAndRows(const TensorSpec& spec, int rank, int ranks);
// Pipeline stages, or experts, spread over ranks.
std::vector<Box> WholeByTurns(const TensorSpec& spec, int rank, int ranks);
// Rows by turns, three runs for each rank: as tensor parallelism within FSDP2 cuts what two linears have fused.
std::vector<Box> RunsOfRows(const TensorSpec& spec, int rank, int ranks);
// Both dimensions at once: 2 x 2 ranks.
std::vector<Box> Quarters(const TensorSpec& spec, int rank, int ranks);

struct ShardCase {
  const char* name;
  ShardLayout layout;
  int ranks;
};
const std::vector<ShardCase>& ShardCases();

// In the order of `weights`, walked once.
layercast::Weights ShardOf(const Weights& weights, const ShardLayout& layout, int rank, int ranks);

// A trainer of several ranks.
class ShardedTrainer {
 public:
  explicit ShardedTrainer(int ranks, const PublisherOptions& options = {.retained_versions = 1});
  ShardedTrainer(const Weights& weights, const ShardLayout& layout, int ranks) : ShardedTrainer(ranks) {
    Publish(weights, layout);
  }
  // `of_rank`: what each rank yields, of its own part.
  void Publish(const Weights& weights, const ShardLayout& layout, PublishMode mode = PublishMode::kSnapshot,
               const std::function<layercast::Weights(int rank, layercast::Weights)>& of_rank = {});
  // Which run each rank says that it is of; by default all say none.
  std::function<std::string(int rank)> run_of_rank = [](int) { return ""; };
  // The last first: ranks are the manifests', not the list's.
  std::vector<std::string> endpoints() const;
  void End(int rank) { publishers_[static_cast<std::size_t>(rank)].reset(); }

 private:
  std::vector<std::unique_ptr<Publisher>> publishers_;
  std::uint64_t step_ = 0;
};

}  // namespace layercast::testing
