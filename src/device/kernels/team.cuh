// How a kernel is run. A *team* of threads, which is a warp or a whole block, works on one part of a weight. A kernel's
// *body* is what one thread of a team does:
//
//   Body(arguments, seat)
//   void Scan(std::uint32_t (&amax)[kMaxima])           reads, and finds largest magnitudes
//   void Encode(const std::uint32_t (&amax)[kMaxima])   writes, with the largest of all threads that share one
//
// kSharers threads share each of the maxima: 0 means all threads of the team, 1 none, and any other number as many
// neighbouring lanes. Blocks have at most kMaxThreads threads, and the registers of a multiprocessor must do for
// kMinBlocks blocks. Threads exchange nothing except the maxima between the two calls, so that a host can run a body
// too, as tests do.
#pragma once

#include <cstdint>

#include "src/device/kernels/device_source.cuh"

namespace layercast::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kMaxTeam = 512;  // threads of a block

// Where a thread sits.
struct Seat {
  int thread = 0;         // number of the thread in its team
  int threads = 0;        // in the team
  std::int64_t team = 0;  // may be past the last team, in the last block
};

// Blocks of `teams_per_block` teams; more than one only if teams are warps.
struct Grid {
  std::int64_t teams = 0;
  int threads = kWarp;  // of a team
  int teams_per_block = 1;
};

inline Grid WarpTeams(std::int64_t teams) { return {teams, kWarp, 256 / kWarp}; }

// Teams for rows of `units` units, of which each thread holds `held` at once. A team has as few warps as can hold a
// whole row. If a row is too long, it is taken in parts of equal length, as few as possible.
inline Grid RowTeams(std::int64_t rows, std::int64_t units, int held, int most_threads) {
  const std::int64_t of_most = std::int64_t{held} * most_threads;
  const std::int64_t parts = units <= of_most ? 1 : (units + of_most - 1) / of_most;
  const std::int64_t of_warp = parts * held * kWarp;
  const std::int64_t warps = (units + of_warp - 1) / of_warp;
  return warps <= 1 ? WarpTeams(rows) : Grid{rows, static_cast<int>(warps) * kWarp, 1};
}

}  // namespace layercast::cuda
