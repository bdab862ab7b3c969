#include "cli/doctor/seen_peers.h"

#include <exception>

#include "cli/arguments/read_answer.h"
#include "src/base/as_error.h"
#include "src/control/rpc.h"
#include "src/session/ask/publisher_status.h"

namespace layercast::cli {
namespace {

void ReadStatus(const Json& status, EngineLook& look) {
  look.state = status.at("state").get<std::string>();
  look.version = status.at("version");
  const Json& channel = status.at("channel");
  if (channel.is_object()) {
    look.channel = channel.at("name").get<std::string>();
    if (channel.at("warning").is_string()) look.warning = channel["warning"].get<std::string>();
  }
  const Json& failed = status.at("last_error");
  if (failed.is_object()) look.last_error = failed.at("message").get<std::string>();
}

}  // namespace

PublisherLook LookAtPublisher(const std::string& endpoint, const Keys& keys, Deadline deadline) {
  PublisherLook look{.endpoint = endpoint};
  try {
    const wire::StatusAnswer status = AskPublisherStatus(endpoint, keys, deadline);
    if (status.versions.empty()) return look;
    const wire::VersionStatus& newest = status.versions.back();
    look.offers = true;
    look.version = VersionToJson(Version{newest.lineage, newest.step, newest.digest});
    look.bytes = newest.bytes;
    look.probe = ProbePublisher(endpoint, keys, deadline);
  } catch (const std::exception& error) {
    look.error = AsError(error);
  }
  return look;
}

EngineLook LookAtEngine(const std::string& endpoint, const Keys& keys, Deadline deadline) {
  EngineLook look{.endpoint = endpoint};
  try {
    const Json status = RpcClient("engine", endpoint, keys).Call("status", Json::object(), deadline);
    ReadAnswer(endpoint, [&] { ReadStatus(status, look); });
  } catch (const std::exception& error) {
    look.error = AsError(error);
  }
  return look;
}

std::optional<double> EstimateSeconds(const PublisherLook& publisher) {
  if (!publisher.probe) return std::nullopt;
  const std::optional<std::size_t> picked = PickChannel(publisher.probe->trials);
  if (!picked || publisher.probe->trials[*picked].gb_per_s <= 0) return std::nullopt;
  return static_cast<double>(publisher.bytes) * 1e-9 / publisher.probe->trials[*picked].gb_per_s;
}

}  // namespace layercast::cli
