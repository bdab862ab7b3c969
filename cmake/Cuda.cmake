# CUDA is on by itself where nvcc is found. Architectures are explicit: cmake 3.25 does not know new ones.
set(LAYERCAST_HAVE_CUDA OFF)
if(LAYERCAST_CUDA STREQUAL "OFF")
  message(STATUS "CUDA: switched off; the cuda_ipc data channel is left out")
  return()
endif()

if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(LAYERCAST_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(LAYERCAST_NVCC)
    set(CMAKE_CUDA_COMPILER ${LAYERCAST_NVCC})
  endif()
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  if(LAYERCAST_CUDA STREQUAL "ON")
    message(FATAL_ERROR "CUDA: nvcc not found")
  endif()
  message(STATUS "CUDA: nvcc not found; CUDA kernels and the cuda_ipc data channel are left out")
  return()
endif()

if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80 90)
endif()
set(CMAKE_CUDA_STANDARD 17)  # the newest that cmake 3.25 can ask nvcc for
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.5)  # src/cuda/call.cc asks the runtime for functions of the driver by version
  message(FATAL_ERROR "CUDA: expected 12.5 or newer, got ${CMAKE_CUDA_COMPILER_VERSION}; LAYERCAST_CUDA=OFF builds without")
endif()
find_package(CUDAToolkit REQUIRED)
set(LAYERCAST_HAVE_CUDA ON)
message(STATUS "CUDA: ${CMAKE_CUDA_COMPILER_VERSION}, architectures ${CMAKE_CUDA_ARCHITECTURES}")

# What libtorch itself does on a device: streams, graphs. Its headers name the toolkit's.
if(LAYERCAST_HAVE_TORCH AND EXISTS ${LAYERCAST_TORCH_DIR}/lib/libtorch_cuda.so)
  add_library(layercast::libtorch_cuda INTERFACE IMPORTED GLOBAL)
  target_include_directories(layercast::libtorch_cuda SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(layercast::libtorch_cuda INTERFACE
    layercast::libtorch ${LAYERCAST_TORCH_DIR}/lib/libtorch_cuda.so ${LAYERCAST_TORCH_DIR}/lib/libc10_cuda.so)
endif()
