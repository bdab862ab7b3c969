// Lists of versions as users of the library see them, from what publishers answer, and how those are called.
#pragma once

#include <string_view>

#include "layercast/publisher.h"
#include "src/wire/frames.h"

namespace layercast {

// Whether it calls a version by its digest: 8 or more of its digits.
bool IsDigits(std::string_view text);

VersionList ToVersionList(const wire::VersionsAnswer& answer);

}  // namespace layercast
