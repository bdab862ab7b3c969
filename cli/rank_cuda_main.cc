// The program `layercast-rank-cuda`: one rank of an engine on a GPU, started by `layercast serve --device cuda` alone.
// Its own program because it holds the CUDA half of libtorch, whose loading no rank on the CPU should wait for.
#include "cli/rank_program.h"
#include "engine_side/server/graph_rank.h"

int main(int argc, char** argv) {
  return layercast::RankMain(argc, argv, [](const layercast::RankOptions& options) {
    // Of those that CUDA_VISIBLE_DEVICES leaves.
    return layercast::RunGraphRank(options, {layercast::Device::Kind::kCuda, options.tp_rank});
  });
}
