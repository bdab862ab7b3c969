// What the engine's service answers about adapters beside their loads: how much memory slots take, and unloading. Used
// by the service.
#pragma once

#include <cstdint>

#include "engine_side/server/adapters/adapter_registry.h"
#include "engine_side/server/group/rank_group.h"
#include "src/control/rpc.h"

namespace layercast {

// What adapters take on the rank that has most of them. Value.
struct AdapterBytes {
  std::uint64_t slots = 0;
  std::uint64_t host_copies = 0;
};

// Throws kInvalidArgument for options that no slots can have, and kResourceExhausted, naming the sums and the layers
// that take most, if they do not fit into the host's memory, where they are for all ranks together, but for slots on a
// device.
AdapterBytes AdapterBytesOf(const RankGroupOptions& options, const ModelFiles& files);

// The answer to `list_adapters`.
Json ListAdapters(const AdapterRegistry& adapters, const AdapterBytes& bytes);

// Takes the name of {"name"} away, and, with {"wait": true}, answers once no sequence uses the adapter any more.
void UnloadAdapter(AdapterRegistry& adapters, const Json& params, const RpcReply& reply);

}  // namespace layercast
