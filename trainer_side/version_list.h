// Lists of versions as users of the library see them, from what publishers answer.
#pragma once

#include "layercast/publisher.h"
#include "src/wire/frames.h"

namespace layercast {

VersionList ToVersionList(const wire::VersionsAnswer& answer);

}  // namespace layercast
