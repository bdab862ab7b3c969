#include "src/control/watch/peers_json.h"

#include <cstdint>
#include <string>
#include <utility>

namespace layercast {
namespace {

Json ReaderJson(const wire::ReaderStatus& reader) {
  const auto or_null = [](const std::string& endpoint) { return endpoint.empty() ? Json() : Json(endpoint); };
  return {{"engine", reader.engine},
          {"rank", reader.rank},
          {"takes_from", or_null(reader.takes_from)},
          {"relays_at", or_null(reader.relays_at)},
          {"bytes", reader.bytes},
          {"gb_per_s", static_cast<double>(reader.bytes_per_second) * 1e-9}};
}

}  // namespace

Json PublisherToJson(const wire::StatusAnswer& answer) {
  Json versions = Json::array();
  std::uint64_t readers = 0;
  for (const wire::VersionStatus& version : answer.versions) {
    readers += version.readers;
    Json receivers = Json::array();
    for (const wire::ReaderStatus& reader : version.receivers) receivers.push_back(ReaderJson(reader));
    versions.push_back({{"version", VersionToJson(Version{version.lineage, version.step, version.digest})},
                        {"mode", version.stream ? "stream" : "snapshot"},
                        {"tensors", version.tensors},
                        {"bytes", version.bytes},
                        {"readers", version.readers},
                        {"receivers", std::move(receivers)},
                        {"part", {{"rank", version.part_rank}, {"ranks", version.part_ranks}}},
                        {"run", version.run.empty() ? Json() : Json(version.run)}});
  }
  // The fields are those of the newest version, which engines take unless they name another.
  Json status = {{"state", "publishing"}, {"version", nullptr}, {"mode", nullptr},           {"pids", {answer.process}},
                 {"tensors", 0},          {"bytes", 0},         {"receivers", Json::array()}};
  if (!versions.empty()) status.update(versions.back());
  status["readers"] = readers;
  status["versions"] = std::move(versions);
  return status;
}

Json PeersToJson(const std::vector<PeerState>& peers) {
  Json engines = Json::array();
  Json publishers = Json::array();
  for (const PeerState& peer : peers) {
    Json entry = {{"endpoint", peer.endpoint}, {"error", peer.error.empty() ? Json() : Json(peer.error)}};
    if (peer.is_engine) {
      entry["status"] = peer.engine;
      engines.push_back(std::move(entry));
    } else {
      entry["versions"] = peer.publisher ? Json(peer.publisher->versions.size()) : Json();
      entry["status"] = peer.publisher ? PublisherToJson(*peer.publisher) : Json();
      publishers.push_back(std::move(entry));
    }
  }
  return {{"engines", std::move(engines)}, {"publishers", std::move(publishers)}};
}

}  // namespace layercast
