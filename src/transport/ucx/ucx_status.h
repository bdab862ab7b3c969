// What UCX says of a call, as our error.
#pragma once

#include <ucs/type/status.h>

#include <string>

#include "layercast/error.h"

namespace layercast::ucx_channel {

// Throws kUnavailable: "UCX cannot `what`: `status`".
inline void Expect(ucs_status_t status, const char* what) {
  if (status == UCS_OK) return;
  throw Error(ErrorCode::kUnavailable, std::string("UCX cannot ") + what + ": " + ucs_status_string(status));
}

}  // namespace layercast::ucx_channel
