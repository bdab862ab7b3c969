// The program `layercast-rank`: one rank of an engine on the CPU, started by `layercast serve` alone. That of a rank on
// a GPU (rank_cuda_main.cc) takes its place.
#include "cli/rank/rank_program.h"

int main(int argc, char** argv) {
  return layercast::RankMain(argc, argv,
                             [](const layercast::RankOptions& options) { return layercast::RunRank(options); });
}
