// The program `layercast-rank`: one rank of an engine on the CPU, started by `layercast serve` alone. It is a program
// of its own because it links libtorch, and no other subcommand should have to wait for that to load.
#include "cli/rank_program.h"

int main(int argc, char** argv) {
  return layercast::RankMain(argc, argv,
                             [](const layercast::RankOptions& options) { return layercast::RunRank(options); });
}
