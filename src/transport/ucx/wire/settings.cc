#include "src/transport/ucx/wire/settings.h"

#include <ucs/config/global_opts.h>

#include <cstdlib>

#include "src/base/log.h"
#include "src/transport/ucx/wire/ucx_status.h"

// Exported by libucs, but declared in none of its installed headers.
extern "C" void ucs_debug_disable_signals();

namespace layercast::ucx_channel {
namespace {

// UCX takes the process's crash signals when it is loaded, which is before main if this library is linked: the handlers
// of the host program, or of a sanitizer, would be gone though nobody asked for UCX. Puts them back, unless the user
// says what UCX is to handle.
[[gnu::constructor]] void GiveCrashSignalsBack() {
  if (std::getenv("UCX_HANDLE_ERRORS") == nullptr) ucs_debug_disable_signals();
}

// Sets an option that the environment does not set. `name` is what UCX documents, without "UCX_"; `key` is what
// ucp_config_modify takes.
void Set(const Settings& settings, const std::string& name, const std::string& key, const std::string& value) {
  if (std::getenv(("UCX_" + name).c_str()) != nullptr) return;
  const ucs_status_t status = ucp_config_modify(settings.get(), key.c_str(), value.c_str());
  if (status != UCS_OK) log::warn("ucx: cannot set {}={}: {}", key, value, ucs_status_string(status));
}

void Set(const Settings& settings, const std::string& name, const std::string& value) {
  Set(settings, name, name, value);
}

// Sets an option of a transport. UCX 1.13 knows it by the last part of its name only, later versions by the whole name.
// Only one transport is in use here, so that both mean the same.
void SetOfTransport(const Settings& settings, const std::string& transport, const std::string& option,
                    const std::string& value) {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned patch = 0;
  ucp_get_version(&major, &minor, &patch);
  const std::string name = transport + "_" + option;
  Set(settings, name, major == 1 && minor < 14 ? option : name, value);
}

// Keeps UCX from printing its complaints to standard output, which belongs to the host program. Errors are also
// returned as statuses.
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
    // Not CMA, with which one process reads or writes the other's memory whenever it likes.
    Set(settings, "TLS", "posix");
    // Without this, UCX does not use shared memory when it is to report lost peers.
    Set(settings, "POSIX_ERROR_HANDLING", "MM_ERROR_HANDLING", "y");
  } else {
    Set(settings, "TLS", "tcp");
    // UCX 1.13 aborts the process when a peer vanishes while TCP sends from the caller's memory: "Assertion
    // `comp->count > 0' failed". Copying to its own buffers first costs a tenth of the processor time, and no speed.
    Set(settings, "ZCOPY_THRESH", "inf");
    // The device over which the control connection has reached the other end. UCX by itself would also choose others,
    // such as the bridge of a container network: it takes for reachable whatever has an address in the same subnet.
    Set(settings, "NET_DEVICES", device);
    SetOfTransport(settings, "TCP", "TX_SEG_SIZE", "1M");  // 8K and 64K by default, at a third of the speed
    SetOfTransport(settings, "TCP", "RX_SEG_SIZE", "1M");
  }
  return settings;
}

}  // namespace layercast::ucx_channel
