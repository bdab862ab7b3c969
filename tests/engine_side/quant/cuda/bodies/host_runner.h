// Runs the bodies of CUDA kernels without a device: team after team, and the threads of each in step, exchanging the
// same values that a device's would.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "src/base/check.h"
#include "src/device/kernels/team.cuh"

namespace layercast {

class OnHost {
 public:
  template <class Body>
  void Run(const typename Body::Arguments& arguments, const cuda::Grid& grid) const {
    LAYERCAST_CHECK(grid.threads % cuda::kWarp == 0 && grid.threads * grid.teams_per_block <= Body::kMaxThreads);
    const std::int64_t blocks = (grid.teams + grid.teams_per_block - 1) / grid.teams_per_block;
    for (std::int64_t team = 0; team < blocks * grid.teams_per_block; ++team) RunTeam<Body>(arguments, grid, team);
  }

 private:
  template <class Body>
  void RunTeam(const typename Body::Arguments& arguments, const cuda::Grid& grid, std::int64_t team) const {
    using Maxima = std::uint32_t[Body::kMaxima];
    std::vector<Body> bodies;
    std::vector<std::uint32_t> amax(static_cast<std::size_t>(grid.threads) * Body::kMaxima);
    for (int thread = 0; thread < grid.threads; ++thread) {
      bodies.emplace_back(arguments, cuda::Seat{thread, grid.threads, team});
      bodies.back().Scan(reinterpret_cast<Maxima&>(amax[static_cast<std::size_t>(thread) * Body::kMaxima]));
    }
    const int sharers = Body::kSharers == 0 ? grid.threads : Body::kSharers;
    for (int first = 0; first < grid.threads; first += sharers) {
      for (int i = 0; i < Body::kMaxima; ++i)
        ShareOne(&amax[static_cast<std::size_t>(first * Body::kMaxima + i)], sharers, Body::kMaxima);
    }
    for (int thread = 0; thread < grid.threads; ++thread) {
      bodies[static_cast<std::size_t>(thread)].Encode(
          reinterpret_cast<const Maxima&>(amax[static_cast<std::size_t>(thread) * Body::kMaxima]));
    }
  }

  static void ShareOne(std::uint32_t* values, int count, int step) {
    std::uint32_t largest = 0;
    for (int i = 0; i < count; ++i) largest = std::max(largest, values[i * step]);
    for (int i = 0; i < count; ++i) values[i * step] = largest;
  }
};

// Runs functions of one element (for_elements.cuh), from the last to the first: the order must not matter.
class ElementsOnHost {
 public:
  template <class Element>
  void Run(const Element& element, std::int64_t count) const {
    for (std::int64_t i = count; i-- > 0;) element(i);
  }
};

}  // namespace layercast
