#include "src/transport/ucx/one_sided/read_lanes.h"

#include <algorithm>
#include <sstream>
#include <string_view>

#include "src/transport/ucx/wire/ucx_status.h"

namespace layercast::ucx_channel {
namespace {

bool StartsWithAny(std::string_view text, const std::vector<std::string>& beginnings) {
  return std::ranges::any_of(beginnings, [&](const std::string& with) { return text.starts_with(with); });
}

// Whether a transport that is named as in UCX_TLS ("rc", "rc_x", "dc_mlx5", "ud:aux") is RDMA.
bool IsRdma(std::string_view transport) {
  const std::string_view family = transport.substr(0, transport.find_first_of("_:"));
  return family == "ib" || family == "rc" || family == "dc" || family == "ud";
}

// Keeps those transports of a comma-separated list that are RDMA.
std::string RdmaAmong(const std::string& named) {
  std::istringstream list(named);
  std::string kept;
  for (std::string transport; std::getline(list, transport, ',');) {
    if (IsRdma(transport)) kept += (kept.empty() ? "" : ",") + transport;
  }
  return kept;
}

}  // namespace

bool ReadLanes::Allow(const std::vector<std::string>& lanes) const {
  const auto reads = [this](const std::string& lane) { return StartsWithAny(lane, reading); };
  return std::ranges::any_of(lanes, reads) && std::ranges::all_of(lanes, [&](const std::string& lane) {
           return reads(lane) || StartsWithAny(lane, helping);
         });
}

ReadLanes RdmaLanes(const char* environment) {
  std::string transports = "ib";
  if (const std::string named(environment != nullptr ? environment : "all"); named.starts_with('^')) {
    if (!RdmaAmong(named.substr(1)).empty()) transports.clear();  // what remains of the families cannot be told
  } else if (named != "all") {
    transports = RdmaAmong(named);
  }
  return {transports, {"rc_", "dc_"}, {"ud_"}};
}

Settings MakeReadSettings(const ReadLanes& lanes) {
  Settings settings = CommonSettings();
  // Overrides the environment: tcp or shared memory in this context would open the process to whoever has its address.
  Expect(ucp_config_modify(settings.get(), "TLS", lanes.transports.c_str()), "be told its transports");
  return settings;
}

}  // namespace layercast::ucx_channel
