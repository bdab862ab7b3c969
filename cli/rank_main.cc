// The program `layercast-rank`: one rank of an engine on the CPU, started by `layercast serve` alone. Its own program
// because it holds libtorch, whose loading no other subcommand should wait for.
#include "cli/rank_program.h"

int main(int argc, char** argv) {
  return layercast::RankMain(argc, argv,
                             [](const layercast::RankOptions& options) { return layercast::RunRank(options); });
}
