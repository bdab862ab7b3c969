// Turns the statuses of UCX's calls into Layercast's errors.
#pragma once

#include <ucs/type/status.h>

#include <cstdlib>
#include <string>

#include "layercast/error.h"
#include "src/base/exhausted.h"

namespace layercast::ucx_channel {

// The part of an error message that names what the environment has chosen: " (UCX_TLS=rc in its environment)". Empty if
// it has chosen nothing.
inline std::string ChosenByEnvironment() {
  std::string chosen;
  for (const char* name : {"UCX_TLS", "UCX_NET_DEVICES"}) {
    if (const char* const value = std::getenv(name))
      chosen += (chosen.empty() ? " (" : ", ") + std::string(name) + "=" + value;
  }
  return chosen.empty() ? chosen : chosen + " in its environment)";
}

// Throws kUnavailable unless the call succeeded: "UCX cannot `what`: `status`", and what the environment has chosen; or
// kResourceExhausted if there was no memory.
inline void Expect(ucs_status_t status, const char* what) {
  if (status == UCS_OK) return;
  if (status == UCS_ERR_NO_MEMORY) throw OutOfMemory(std::string("UCX cannot ") + what, 0);
  throw Error(ErrorCode::kUnavailable,
              std::string("UCX cannot ") + what + ": " + ucs_status_string(status) + ChosenByEnvironment());
}

}  // namespace layercast::ucx_channel
