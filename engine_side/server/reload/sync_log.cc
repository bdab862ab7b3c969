#include "engine_side/server/reload/sync_log.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "engine_side/server/group/reload_request.h"
#include "src/base/log_entry.h"
#include "src/base/run_at.h"

namespace layercast {
namespace {

double Seconds(std::chrono::steady_clock::duration took) { return std::chrono::duration<double>(took).count(); }

// Where the weights came from: an endpoint or a folder; empty: the checkpoint that was loaded last, or none.
std::string PeerOf(const Json& params) {
  for (const char* source : {"publisher", "engine", "weights_path"}) {
    if (IsGiven(params, source) && params[source].is_string()) return params[source].get<std::string>();
  }
  return {};
}

}  // namespace

void LogSync(const Json& outcome, const Json& params, const std::string& session,
             std::chrono::steady_clock::duration took) {
  const Version version = VersionFromJson(outcome.at("version"));
  const Json& report = outcome.at("report");
  log::Write(log::Level::kInfo, "synced",
             {{"session", session},
              {"version", RunAt(version)},
              {"digest", version.digest.ToHex()},
              {"bytes", report.at("bytes").get<std::uint64_t>()},
              {"seconds", Seconds(took)},
              {"channel", report.at("channel").at("name").get<std::string>()},
              {"peer", PeerOf(params)}});
}

void LogAdapterSync(const Json& outcome, const Json& params, std::chrono::steady_clock::duration took) {
  const Version version = VersionFromJson(outcome.at("version"));
  const Json& report = outcome.at("report");
  log::Write(log::Level::kInfo, "synced adapter",
             {{"adapter", params.at("name").get<std::string>()},
              {"version", RunAt(version)},
              {"digest", version.digest.ToHex()},
              {"bytes", report.at("bytes").get<std::uint64_t>()},
              {"seconds", Seconds(took)},
              {"channel", report.at("channel").at("name").get<std::string>()},
              {"peer", PeerOf(params)}});
}

void LogFailedSync(const Error& why, const Json& params, const std::string& session,
                   std::chrono::steady_clock::duration took) {
  log::Write(log::Level::kError, "reload: " + std::string(why.what()),
             {{"session", session},
              {"code", ErrorToJson(why).at("code").get<std::string>()},
              {"seconds", Seconds(took)},
              {"peer", PeerOf(params)}});
}

}  // namespace layercast
