#include "src/transport/ucx/settings.h"

#include <ucs/config/global_opts.h>

#include <cstdlib>

#include "src/base/log.h"
#include "src/transport/ucx/ucx_status.h"

namespace layercast::ucx_channel {
namespace {

// `name` as UCX documents it, without "UCX_"; `key` as ucp_config_modify wants it.
void Set(const Settings& settings, const std::string& name, const std::string& key, const std::string& value) {
  if (std::getenv(("UCX_" + name).c_str()) != nullptr) return;
  const ucs_status_t status = ucp_config_modify(settings.get(), key.c_str(), value.c_str());
  if (status != UCS_OK) log::warn("ucx: cannot set {}={}: {}", key, value, ucs_status_string(status));
}

void Set(const Settings& settings, const std::string& name, const std::string& value) {
  Set(settings, name, name, value);
}

// UCX 1.13 knows a transport's options by their last part only; later ones by the whole name. Only one transport is in
// use here, so that both say the same.
void SetOfTransport(const Settings& settings, const std::string& transport, const std::string& option,
                    const std::string& value) {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned patch = 0;
  ucp_get_version(&major, &minor, &patch);
  const std::string name = transport + "_" + option;
  Set(settings, name, major == 1 && minor < 14 ? option : name, value);
}

// What UCX dislikes it prints to standard output, which is the host program's. Errors come to us as statuses as well.
void KeepStandardOutputClean() {
  if (std::getenv("UCX_LOG_LEVEL") != nullptr || std::getenv("UCX_LOG_FILE") != nullptr) return;
  if (ucs_global_opts_set_value("LOG_LEVEL", "fatal") != UCS_OK) log::warn("ucx: cannot set LOG_LEVEL=fatal");
}

}  // namespace

bool MayShareMemory() {
  const char* transports = std::getenv("UCX_TLS");
  if (transports == nullptr) return true;
  const std::string named(transports);
  return named == "all" || named.find("posix") != std::string::npos || named.find("sm") != std::string::npos ||
         named.find("shm") != std::string::npos;
}

bool ShareMemory(const HostIdentity& mine, const HostIdentity& theirs) {
  const auto processes = [](const HostIdentity& host) { return host.process.substr(host.process.find('@') + 1); };
  return MayShareMemory() && !mine.boot_id.empty() && theirs.boot_id == mine.boot_id && theirs.user == mine.user &&
         !mine.network.empty() && theirs.network == mine.network && processes(theirs) == processes(mine);
}

Settings CommonSettings() {
  KeepStandardOutputClean();
  ucp_config_t* raw = nullptr;
  Expect(ucp_config_read(nullptr, nullptr, &raw), "read its configuration");
  Settings settings(raw, &ucp_config_release);
  // The control connection tells of lost peers, and UCX 1.13's own keepalive can end in a segmentation fault.
  Set(settings, "KEEPALIVE_INTERVAL", "inf");
  return settings;
}

Settings MakeSettings(Lanes lanes, const std::string& device) {
  Settings settings = CommonSettings();
  if (lanes == Lanes::kSharedMemory) {
    // Not CMA: with it one process writes or reads another's memory, at a time of its own.
    Set(settings, "TLS", "posix");
    // Without this UCX drops shared memory as soon as it is to report lost peers.
    Set(settings, "POSIX_ERROR_HANDLING", "MM_ERROR_HANDLING", "y");
  } else {
    Set(settings, "TLS", "tcp");
    // UCX 1.13 aborts the process when a peer vanishes while TCP sends from the caller's memory: "Assertion
    // `comp->count > 0' failed". Copying to its own buffers first costs a tenth of the processor time, and no speed.
    Set(settings, "ZCOPY_THRESH", "inf");
    // The device that the control connection reached the other end by. Of what else a host has (bridges of containers,
    // networks of their own) UCX takes for reachable what has an address of the same subnet.
    Set(settings, "NET_DEVICES", device);
    SetOfTransport(settings, "TCP", "TX_SEG_SIZE", "1M");  // 8K and 64K by default, at a third of the speed
    SetOfTransport(settings, "TCP", "RX_SEG_SIZE", "1M");
  }
  return settings;
}

}  // namespace layercast::ucx_channel
