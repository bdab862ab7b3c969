#include "engine_side/server/group/reload_request.h"

#include "engine_side/reload/sources/kernel_files.h"
#include "layercast/error.h"
#include "src/control/json_forms.h"
#include "src/net/zmq/endpoint.h"
#include "src/store/version_store.h"

namespace layercast {
namespace {

// A value of a wrong type is the caller's mistake: turns JSON errors into kInvalidArgument.
template <class Parse>
auto Parsed(const Parse& parse) {
  try {
    return parse();
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::kInvalidArgument, std::string("params: ") + error.what());
  }
}

ReloadSource PathFromJson(const Json& params) {
  return FromCheckpoint(CheckpointFromJson(params), params.value("is_checkpoint_format", true));
}

Digest DigestFromJson(const Json& params) {
  if (!IsGiven(params, "digest")) return {};
  const auto text = params["digest"].get<std::string>();
  if (const std::optional<Digest> digest = Digest::FromHex(text)) return *digest;
  throw Error(ErrorCode::kInvalidArgument, "params: digest: expected 32 hexadecimal digits, got '" + text + "'");
}

ReloadSource PublisherFromJson(const Json& params) {
  std::optional<std::uint64_t> step;
  if (IsGiven(params, "step")) step = params["step"].get<std::uint64_t>();
  const auto lineage = params.value("lineage", std::string());
  std::vector<std::string> endpoints = SplitEndpoints(params["publisher"].get<std::string>());
  const Digest digest = DigestFromJson(params);
  if (endpoints.size() == 1) return FromPublisher(std::move(endpoints.front()), lineage, step, digest);
  if (digest && !step) {  // none of them has the whole version, whose digest it is
    throw Error(ErrorCode::kInvalidArgument,
                "params: digest: expected lineage and step beside it where several publishers have a version");
  }
  return FromPublishers(std::move(endpoints), lineage, step);
}

ReloadSource StoreFromJson(const Json& params) {
  std::optional<std::uint64_t> step;
  if (IsGiven(params, "step")) step = params["step"].get<std::uint64_t>();
  return FromStore(params["store"].get<std::string>(), params.value("lineage", std::string()), step,
                   DigestFromJson(params));
}

ReloadSource LentFromJson(const Json& lent, int engine_rank) {
  const Json& twin = lent.at("ranks").at(static_cast<std::size_t>(engine_rank));
  return FromEngineRank(twin.at("endpoint").get<std::string>(), VersionFromJson(lent.at("version")),
                        Digest::FromHex(twin.at("served_digest").get<std::string>()).value_or(Digest{}));
}

ReloadSource WholeFromJson(const Json& params, int engine_rank) {
  if (IsGiven(params, "weights_path")) return PathFromJson(params);
  if (IsGiven(params, "publisher")) return PublisherFromJson(params);
  if (IsGiven(params, "store")) return StoreFromJson(params);
  if (IsGiven(params, "lent")) return LentFromJson(params["lent"], engine_rank);
  return IsDummy(params) ? FromDummy(params.value("seed", std::uint64_t{0})) : FromOrigin();
}

}  // namespace

bool IsGiven(const Json& params, const char* field) { return params.contains(field) && !params[field].is_null(); }

void CheckOneSource(const Json& params) {
  std::string given;
  int count = 0;
  for (const char* source : {"weights_path", "publisher", "store", "engine"}) {
    if (!IsGiven(params, source)) continue;
    if (!params[source].is_string()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "params: " + std::string(source) + ": expected a string, got " + params[source].dump());
    }
    given += (count++ == 0 ? "" : " and ") + std::string(source);
  }
  if (count < 2) return;
  throw Error(ErrorCode::kInvalidArgument,
              "params: expected one of weights_path, publisher, store and engine, got " + given);
}

void FindInStore(Json& params) {
  if (!IsGiven(params, "store")) return;
  Parsed([&] {
    const std::optional<std::uint64_t> step =
        IsGiven(params, "step") ? std::optional(params["step"].get<std::uint64_t>()) : std::nullopt;
    const VersionStore store(StoreFolder::Open(params["store"].get<std::string>()));
    const StoredVersion found = store.Find(params.value("lineage", std::string()), step, DigestFromJson(params));
    params["lineage"] = found.version().lineage;
    params["step"] = found.version().step;
    params["digest"] = found.version().digest.ToHex();
  });
}

CheckpointSource CheckpointFromJson(const Json& params) {
  return Parsed([&] {
    CheckpointSource source{.path = params.at("weights_path").get<std::string>(),
                            .load_format = params.value("load_format", std::string("auto"))};
    if (!IsGiven(params, "secondary_weights")) return source;
    for (const Json& more : params["secondary_weights"]) {
      source.secondary.push_back({more.at("prefix").get<std::string>(), more.at("path").get<std::string>()});
    }
    return source;
  });
}

bool IsDummy(const Json& params) {
  return Parsed(
      [&] { return !IsGiven(params, "weights_path") && params.value("load_format", std::string()) == "dummy"; });
}

bool RanksNameTheirOwn(const Json& params) {
  return Parsed([&] {
    if (!IsGiven(params, "weights_path")) return false;
    const CheckpointSource source = CheckpointFromJson(params);
    const bool kernel_format = !params.value("is_checkpoint_format", true) || IsKernelFormat(source);
    return kernel_format && !ExportedVersion(source.path);
  });
}

ReloadSource SourceFromJson(const Json& params, int engine_rank) {
  return Parsed([&] {
    ReloadSource source = WholeFromJson(params, engine_rank);
    source.partial = params.value("partial", false);
    source.may_keep = params.value("may_keep", std::vector<std::string>());
    source.allow_config_change = params.value("allow_config_change", false);
    if (IsGiven(params, "noise")) {
      if (params["noise"] != "off") {
        throw Error(ErrorCode::kInvalidArgument, "params: noise: expected 'off', got " + params["noise"].dump());
      }
      source.noise = Noise();
    }
    return source;
  });
}

}  // namespace layercast
