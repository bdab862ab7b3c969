// "HOST:PORT", where servers of HTTP are bound.
#pragma once

#include <string>

namespace layercast {

// `bind` with the host's name replaced by its address. Throws kInvalidArgument, which begins with `what` ("metrics
// address"), if it is no such address, and, unless `may_leave_the_host`, if other hosts reach it; then `advice` says
// what of that, and what else there is.
std::string BindableHostAndPort(const std::string& what, const std::string& bind, bool may_leave_the_host,
                                const std::string& advice);

}  // namespace layercast
