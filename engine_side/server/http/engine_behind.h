// The engine of which an HTTP door is, as the door sees it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "engine_side/server/generate/generate_call.h"
#include "engine_side/server/metrics/engine_metrics.h"
#include "src/control/rpc.h"
#include "src/net/keys/keys.h"

namespace layercast {

// Value; all may be called on any thread.
struct EngineBehind {
  std::string model;        // the folder of its weights
  std::int64_t max_length;  // of a sequence
  bool insecure;            // whoever reaches it may generate
  std::string endpoint;     // at which it is called
  Keys keys;                // by which its publisher is asked
  std::function<Json()> status;
  std::function<EngineLook()> look;
  // Throws what is wrong with the params, or with the moment.
  std::function<void(const Json& params, const RpcReply& reply, const SequenceNews& news)> generate;
  std::function<std::string()> followed;  // the publisher that it follows; empty: none
};

}  // namespace layercast
