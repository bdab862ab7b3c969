// Stands where `layercast serve --device cuda` looks for its rank program: the same rank, whose device is host memory.
// So all of such an engine runs without a GPU but what is CUDA's.
#include "cli/rank/rank_program.h"
#include "engine_side/server/rank/graph/graph_rank.h"

int main(int argc, char** argv) {
  return layercast::RankMain(
      argc, argv, [](const layercast::RankOptions& options) { return layercast::RunGraphRank(options, {}); });
}
