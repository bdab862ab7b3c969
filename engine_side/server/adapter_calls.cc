#include "engine_side/server/adapter_calls.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine_side/adapters/adapter_slots.h"
#include "engine_side/model/naming/path.h"
#include "layercast/error.h"

namespace layercast {
namespace {

constexpr std::chrono::milliseconds kUnloadTimeout{300'000};
constexpr std::size_t kNamedLayers = 3;

// "qkv_proj 1234 bytes, experts 99 bytes": the kinds of layers that take most.
std::string Largest(std::span<const AdapterTerm> terms, const AdapterSlotSizes& sizes) {
  std::map<std::string, std::uint64_t> by_layer;
  for (const AdapterTerm& term : terms)
    by_layer[std::string(LastName(term.layer))] += AdapterSlots::BytesOf({&term, 1}, sizes);
  std::vector<std::pair<std::uint64_t, std::string>> largest;
  for (const auto& [layer, bytes] : by_layer) largest.emplace_back(bytes, layer);
  std::ranges::sort(largest, std::greater());
  std::string text;
  for (std::size_t i = 0; i < std::min(kNamedLayers, largest.size()); ++i) {
    text += (text.empty() ? "" : ", ") + largest[i].second + " " + std::to_string(largest[i].first) + " bytes";
  }
  return text;
}

}  // namespace

AdapterBytes AdapterBytesOf(const RankGroupOptions& options, const ModelFiles& files) {
  if (options.adapter_slots == 0) {
    if (options.host_adapters == 0) return {};
    throw Error(ErrorCode::kInvalidArgument,
                std::to_string(options.host_adapters) +
                    " host adapters: expected adapter slots, through which they come, got none");
  }
  AdapterBytes most, sum;
  std::string largest;
  for (int rank = 0; rank < options.tp_size * options.pp_size; ++rank) {
    ParallelConfig parallel{.tp_rank = rank % options.tp_size,
                            .tp_size = options.tp_size,
                            .pp_rank = rank / options.tp_size,
                            .pp_size = options.pp_size,
                            .pp_layer_partition = options.pp_layers};
    if (options.expert_parallel) parallel.SpreadExperts(options.expert_placement);
    const std::vector<AdapterTerm> terms = AdapterTermsOf(*files.BuildTree(parallel), options.adapter_modules);
    AdapterSlotSizes sizes{
        .slots = options.adapter_slots, .max_rank = options.max_adapter_rank, .dtype = options.adapter_dtype};
    const std::uint64_t slots = AdapterSlots::BytesOf(terms, sizes);
    if (slots > most.slots) largest = Largest(terms, sizes);
    sizes.slots = HostCopiesFor(options.host_adapters);
    const std::uint64_t host_copies = AdapterSlots::BytesOf(terms, sizes);
    most = {std::max(most.slots, slots), std::max(most.host_copies, host_copies)};
    sum = {sum.slots + slots, sum.host_copies + host_copies};
  }
  const auto memory =
      static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGE_SIZE));
  if ((options.on_device ? 0 : sum.slots) + sum.host_copies <= memory) return most;
  std::string what = std::to_string(options.adapter_slots) + " adapter slots of rank " +
                     std::to_string(options.max_adapter_rank) + " take " + std::to_string(sum.slots) +
                     " bytes, of which " + largest;
  if (options.host_adapters > 0) {
    what += ", and " + std::to_string(HostCopiesFor(options.host_adapters)) + " host copies, one more than " +
            std::to_string(options.host_adapters) + " host adapters, take " + std::to_string(sum.host_copies);
  }
  throw Error(ErrorCode::kResourceExhausted, what + "; this machine has " + std::to_string(memory) +
                                                 " (fewer of them, a smaller rank, or --adapter-modules take less)");
}

Json ListAdapters(const AdapterRegistry& adapters, const AdapterBytes& bytes) {
  return {{"slots", adapters.size()},
          {"bytes", bytes.slots},
          {"host_adapters", adapters.host_adapters()},
          {"host_bytes", bytes.host_copies},
          {"adapters", adapters.List()}};
}

void UnloadAdapter(AdapterRegistry& adapters, const Json& params, const RpcReply& reply) {
  const auto name = params.at("name").get<std::string>();
  adapters.Unload(name);
  if (params.value("wait", false)) {
    const Deadline deadline = Deadline::After(MillisecondsFrom(params, "timeout_ms", kUnloadTimeout));
    adapters.WaitUnused(name, deadline.OrStop(reply.abandoned()));
  }
  reply.Result({{"adapters", adapters.List()}});
}

}  // namespace layercast
