// Asks what a publisher offers now. Used by `layercast status`, not by receivers.
#pragma once

#include <string>

#include "src/base/deadline.h"
#include "src/net/keys/keys.h"
#include "src/wire/frames.h"

namespace layercast {

// Asks over the control link, without a session. Throws kUnavailable or kDeadlineExceeded naming the publisher.
wire::StatusAnswer AskPublisherStatus(const std::string& endpoint, const Keys& keys, Deadline deadline);

}  // namespace layercast
