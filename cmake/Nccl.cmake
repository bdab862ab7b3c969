# NCCL's header alone: the library is loaded at run time (src/transport/nccl/wire/dynamic_nccl.h). It needs the CUDA toolkit's.
#   LAYERCAST_NCCL_INCLUDE  the folder of nccl.h; by default the toolkit's or the system's
set(LAYERCAST_HAVE_NCCL OFF)
if(NOT LAYERCAST_HAVE_CUDA)
  message(STATUS "NCCL: there is no CUDA; the nccl data channel is left out")
  return()
endif()
find_path(LAYERCAST_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
if(NOT LAYERCAST_NCCL_INCLUDE)
  message(STATUS "NCCL: nccl.h not found; the nccl data channel is left out")
  return()
endif()

set(LAYERCAST_HAVE_NCCL ON)
add_library(layercast::nccl_header INTERFACE IMPORTED GLOBAL)
target_include_directories(layercast::nccl_header SYSTEM INTERFACE
  ${LAYERCAST_NCCL_INCLUDE} ${CUDAToolkit_INCLUDE_DIRS})
file(STRINGS ${LAYERCAST_NCCL_INCLUDE}/nccl.h version REGEX "#define NCCL_(MAJOR|MINOR|PATCH) ")
string(REGEX MATCHALL "[0-9]+" version "${version}")
list(JOIN version "." version)
message(STATUS "NCCL: header of ${version}")
