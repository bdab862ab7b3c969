// Which versions an engine that was late has passed over: those that its publisher offered between what the engine
// served and what it serves now, also where they are not kept any more. Used by the reloader, for its report.
#pragma once

#include <optional>
#include <string>

#include "layercast/version.h"
#include "src/control/json_forms.h"
#include "src/net/keys/keys.h"

namespace layercast {

// Asks the publisher, or the first of several. Returns {"count", "complete", "versions": [{"version", "run"}]} with the
// newest of them, oldest first; null if it cannot be known: the two are of different lineages, or the publisher does
// not answer. It is not complete if the publisher does not know the one that was served before: then its steps alone
// say what is after it.
Json PassedOver(const std::string& publishers, const Keys& keys, const std::optional<Version>& before,
                const Version& now);

}  // namespace layercast
