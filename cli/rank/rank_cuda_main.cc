// The program `layercast-rank-cuda`: one rank of an engine on a GPU, started by `layercast serve --device cuda` alone.
// It is a program of its own because it links libtorch with its CUDA half, which no other needs.
#include "cli/rank/rank_program.h"
#include "engine_side/server/rank/graph/graph_rank.h"

int main(int argc, char** argv) {
  return layercast::RankMain(argc, argv, [](const layercast::RankOptions& options) {
    // The device is counted among those that CUDA_VISIBLE_DEVICES leaves.
    return layercast::RunGraphRank(options, {layercast::Device::Kind::kCuda, options.tp_rank});
  });
}
