#include "layercast/report.h"

#include "src/control/json_forms.h"

namespace layercast {
namespace {

Json DeltaToJson(const std::optional<DeltaChoice>& delta) {
  if (!delta) return nullptr;
  return {{"taken", delta->taken},
          {"why", delta->why},
          {"base", delta->base == Version() ? Json(nullptr) : VersionToJson(delta->base)},
          {"dense_bytes", delta->dense_bytes},
          {"encoded_bytes", delta->encoded_bytes},
          {"estimated_dense_ms", delta->estimated_dense_ms},
          {"estimated_delta_ms", delta->estimated_delta_ms},
          {"took_ms", delta->took_ms}};
}

}  // namespace

std::string ReloadReport::ToJson() const {
  Json json;
  json["version"] = VersionToJson(version);
  json["channel"] = {{"name", channel},
                     {"gb_per_s", gb_per_s},
                     {"probed_gb_per_s", probed_gb_per_s},
                     {"lane", channel_lane},
                     {"reason", channel_reason},
                     {"warning", channel_warning.empty() ? Json(nullptr) : Json(channel_warning)}};
  json["run_warning"] = run_warning.empty() ? Json(nullptr) : Json(run_warning);
  json["bytes"] = bytes;
  json["bytes_total"] = bytes_total;
  json["layers"] = layers;
  json["layers_kept"] = layers_kept;
  json["kept"] = kept;
  json["peak_buffered_bytes"] = peak_buffered_bytes;
  json["staged_bytes"] = staged_bytes;
  json["publishers"] = Json::array();
  for (const PublisherShare& publisher : publishers) {
    json["publishers"].push_back({{"endpoint", publisher.endpoint},
                                  {"channel", publisher.channel},
                                  {"bytes", publisher.bytes},
                                  {"relayed_bytes", publisher.relayed_bytes},
                                  {"relays", publisher.relays},
                                  {"held_up_ms", publisher.held_up_seconds * 1e3},
                                  {"core_ms", publisher.core_seconds * 1e3},
                                  {"serving_core_ms", publisher.serving_core_seconds * 1e3}});
  }
  json["delta"] = DeltaToJson(delta);
  json["config_compared"] = config_compared;
  json["config_changes"] = config_changes;
  json["out_of_order"] = Json::array();
  for (const OutOfOrderEpisode& episode : out_of_order) {
    json["out_of_order"].push_back(
        {{"warning", episode.warning}, {"layers", episode.layers}, {"awaited", episode.awaited}});
  }
  json["cast"] = Json::array();
  for (const CastTensor& tensor : cast) {
    json["cast"].push_back({{"name", tensor.name}, {"from", Name(tensor.from)}, {"to", Name(tensor.to)}});
  }
  json["skipped"] = Json::array();
  for (const SkippedName& tensor : skipped) json["skipped"].push_back({{"name", tensor.name}, {"rule", tensor.rule}});
  json["unused_rules"] = unused_rules;
  json["elsewhere"] = elsewhere;
  json["noise"] = NoiseToJson(noise);
  json["stage_ms"] = Json::object();
  for (const auto& [stage, milliseconds] : stage_ms) json["stage_ms"][stage] = milliseconds;
  json["total_ms"] = total_ms;
  json["served_digest"] = served_digest.ToHex();
  json["buffers_digest"] = buffers_digest.ToHex();
  return json.dump();
}

}  // namespace layercast
