# UCX as one imported target of our own. Its package file names its targets differently from version to version, and before
# 1.16 cannot be read twice.
#   LAYERCAST_UCX_DIR  the folder that has include/ucp and lib; by default where the system has it
set(LAYERCAST_HAVE_UCX OFF)
if(LAYERCAST_UCX STREQUAL "OFF")
  message(STATUS "UCX: switched off; the ucx data channel is left out")
  return()
endif()
find_path(LAYERCAST_UCX_INCLUDE ucp/api/ucp.h HINTS ${LAYERCAST_UCX_DIR}/include)
find_library(LAYERCAST_UCX_UCP ucp HINTS ${LAYERCAST_UCX_DIR}/lib)
find_library(LAYERCAST_UCX_UCS ucs HINTS ${LAYERCAST_UCX_DIR}/lib)
if(NOT LAYERCAST_UCX_INCLUDE OR NOT LAYERCAST_UCX_UCP OR NOT LAYERCAST_UCX_UCS)
  message(STATUS "UCX: not found; the ucx data channel is left out")
  return()
endif()

file(STRINGS ${LAYERCAST_UCX_INCLUDE}/ucp/api/ucp_version.h version REGEX "#define UCP_API_(MAJOR|MINOR)")
string(REGEX MATCHALL "[0-9]+" version "${version}")
list(JOIN version "." version)
if(version VERSION_LESS 1.13)
  message(STATUS "UCX: 1.13 or newer is needed, found ${version}; the ucx data channel is left out")
  return()
endif()

set(LAYERCAST_HAVE_UCX ON)
add_library(layercast::ucx INTERFACE IMPORTED GLOBAL)
target_include_directories(layercast::ucx SYSTEM INTERFACE ${LAYERCAST_UCX_INCLUDE})
target_link_libraries(layercast::ucx INTERFACE ${LAYERCAST_UCX_UCP} ${LAYERCAST_UCX_UCS})
message(STATUS "UCX: ${version}")
