// Where metrics may be served.
#pragma once

#include <string>

namespace layercast {

// "HOST:PORT" with the host's name replaced by its address, as HTTP servers bind it. Throws kInvalidArgument if it is
// no such address, and, unless `open`, if other hosts reach it.
std::string BindableMetricsAddress(const std::string& bind, bool open);

}  // namespace layercast
