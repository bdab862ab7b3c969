// The page of the dashboard: dashboard.html, which the build puts into the program.
#pragma once

#include <string_view>

namespace layercast {

extern const std::string_view kDashboardPage;

}  // namespace layercast
