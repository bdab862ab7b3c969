// LAYERCAST_CHECK, an assertion about Layercast's own code. Nothing that comes from the wire or a file may reach one.
#pragma once

#include "layercast/error.h"

namespace layercast {

[[noreturn]] void ThrowCheckFailure(const char* condition, const char* file, int line);

}  // namespace layercast

#define LAYERCAST_CHECK(condition) \
  (static_cast<bool>(condition) ? void(0) : ::layercast::ThrowCheckFailure(#condition, __FILE__, __LINE__))
