// Which part of the model this rank holds. Value.
#pragma once

namespace layercast {

struct ParallelConfig {
  int tp_rank = 0;
  int tp_size = 1;
};

}  // namespace layercast
