# The dashboard's page goes into the program as it is.
file(READ ${folder}/dashboard.html layercast_dashboard_page)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/dashboard.html)
set(layercast_page_source ${PROJECT_BINARY_DIR}/generated/dashboard_page.cc)
file(CONFIGURE OUTPUT ${layercast_page_source} @ONLY CONTENT [[
#include "engine_side/server/http/dashboard_page.h"

namespace layercast {

const std::string_view kDashboardPage = R"dashboard(@layercast_dashboard_page@)dashboard";

}  // namespace layercast
]])
list(APPEND sources ${layercast_page_source})
