#include "engine_side/server/rank/process/rank_options.h"

namespace layercast {

ParallelConfig ParallelOf(const RankOptions& options) {
  ParallelConfig parallel{.tp_rank = options.tp_rank,
                          .tp_size = options.tp_size,
                          .pp_rank = options.pp_rank,
                          .pp_size = options.pp_size,
                          .pp_layer_partition = options.pp_layers};
  if (options.expert_parallel) parallel.SpreadExperts(options.expert_placement);
  return parallel;
}

QuantizationConfig QuantizationOf(const RankOptions& options) {
  return {options.recipe, options.power_of_two_scales, options.requantize};
}

ReceiverOptions ReceiverOptionsOf(const RankOptions& options) {
  ReceiverOptions receiver;
  receiver.engine = options.engine;
  receiver.channel = options.channel;
  receiver.relay = options.relay;
  receiver.keep_source = options.keep_source;
  receiver.delta = options.delta;
  receiver.keys = options.keys;
  receiver.chunk_bytes = options.chunk_bytes;
  receiver.buffer_limit = options.buffer_limit;
  receiver.commit = options.commit;
  receiver.noise = options.noise;
  return receiver;
}

}  // namespace layercast
