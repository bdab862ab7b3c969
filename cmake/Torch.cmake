# libtorch as one imported target of our own, from the torch wheel of a Python environment.
#   LAYERCAST_TORCH_DIR  the folder of the `torch` package; by default that of .venv, then of python3
# Torch's own package file is not used: it insists on a CUDA toolkit and changes global flags.
set(LAYERCAST_HAVE_TORCH OFF)
if(LAYERCAST_TORCH STREQUAL "OFF")
  message(STATUS "libtorch: switched off; the engine on a GPU and tests of torch's headers are left out")
  return()
endif()

if(NOT EXISTS "${LAYERCAST_TORCH_DIR}/lib/libtorch_cpu.so")
  foreach(python ${PROJECT_SOURCE_DIR}/.venv/bin/python python3)
    execute_process(
      COMMAND ${python} -c "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0])"
      OUTPUT_VARIABLE found RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(NOT failed AND EXISTS ${found}/lib/libtorch_cpu.so)
      set(LAYERCAST_TORCH_DIR ${found} CACHE PATH "Folder of the torch package" FORCE)
      break()
    endif()
  endforeach()
endif()

if(NOT EXISTS "${LAYERCAST_TORCH_DIR}/lib/libtorch_cpu.so")
  if(LAYERCAST_TORCH STREQUAL "ON")
    message(FATAL_ERROR "libtorch: not found; set LAYERCAST_TORCH_DIR to the folder of the torch package")
  endif()
  message(STATUS "libtorch: not found; the engine on a GPU and tests of torch's headers are left out")
  return()
endif()

set(LAYERCAST_HAVE_TORCH ON)
add_library(layercast::libtorch INTERFACE IMPORTED GLOBAL)
target_include_directories(layercast::libtorch SYSTEM INTERFACE
  ${LAYERCAST_TORCH_DIR}/include ${LAYERCAST_TORCH_DIR}/include/torch/csrc/api/include)
# The wheel's libraries name dependencies that live elsewhere in site-packages: leave those to the loader. libtorch.so
# is left out: it computes nothing, and loads the CUDA half (cmake/Cuda.cmake), which nearly doubles the start.
target_link_libraries(layercast::libtorch INTERFACE
  ${LAYERCAST_TORCH_DIR}/lib/libtorch_cpu.so ${LAYERCAST_TORCH_DIR}/lib/libc10.so)
target_link_options(layercast::libtorch INTERFACE
  LINKER:--allow-shlib-undefined LINKER:-rpath,${LAYERCAST_TORCH_DIR}/lib)
message(STATUS "libtorch: ${LAYERCAST_TORCH_DIR}")
