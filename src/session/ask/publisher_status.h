// Asks what a publisher offers and keeps, and gives it orders. Used by `layercast status` and `versions`, and by
// RemotePublisher; not by receivers.
#pragma once

#include <optional>
#include <string>

#include "src/base/deadline.h"
#include "src/net/keys/keys.h"
#include "src/trace/process_trace.h"
#include "src/wire/frames.h"

namespace layercast {

// Asks over the control link, without a session. Throws kUnavailable or kDeadlineExceeded naming the publisher.
wire::StatusAnswer AskPublisherStatus(const std::string& endpoint, const Keys& keys, Deadline deadline);
// The same, for the versions that it keeps; `order` is a VersionsRequest, PinVersion, HoldVersion or EvictVersion.
// Throws what the publisher refuses with, too.
wire::VersionsAnswer AskVersions(const std::string& endpoint, const Keys& keys, wire::Message order, Deadline deadline);
// What it has recorded of a session, moved to this process's clock; nullopt: it knows nothing of it. `ask` has no
// answer's fields.
std::optional<ProcessTrace> AskSessionTrace(const std::string& endpoint, const Keys& keys,
                                            const wire::SessionTrace& ask, Deadline deadline);
// Has the publisher publish a folder, and waits until the version is offered.
wire::PublishedFolder OrderFolder(const std::string& endpoint, const Keys& keys, wire::PublishFolder order,
                                  Deadline deadline);

}  // namespace layercast
