// Calls of `generate`: whether what is served is good enough for them, and what becomes of their prompts. Used by the
// engine's service, for its RPC and its HTTP door.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "engine_side/server/generate/generate_call.h"
#include "engine_side/server/generate/generator.h"
#include "engine_side/server/reload/followed_publisher.h"
#include "engine_side/server/reload/staleness.h"
#include "layercast/model/config.h"
#include "src/control/rpc.h"

namespace layercast {

// Resource; thread-safe. What it is given must outlive it.
class GenerateCalls {
 public:
  // What a call's prompts are checked by. Value.
  struct Bounds {
    const ModelConfig& config;
    std::int64_t max_model_len;
    std::optional<StalenessBound> max_staleness;  // for a call that names none
  };
  GenerateCalls(Generator& generator, FollowedPublisher& followed, std::function<std::optional<Version>()> served,
                const Bounds& bounds)
      : generator_(generator), followed_(followed), served_(std::move(served)), bounds_(bounds) {}

  // Begins one, which answers later; with a bound to staleness once the publisher was heard. `news`, if there is one,
  // is told of each token. Throws what is wrong with the params or with the moment.
  void Begin(const Json& params, const RpcReply& reply, const SequenceNews& news = {});

 private:
  void Generate(const Json& params, const RpcReply& reply, const SequenceNews& news);

  Generator& generator_;
  FollowedPublisher& followed_;
  const std::function<std::optional<Version>()> served_;
  const Bounds bounds_;
};

}  // namespace layercast
