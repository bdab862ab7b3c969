# Language level, warnings and sanitizers, for our own code.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(LAYERCAST_CCACHE ccache)
if(LAYERCAST_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${LAYERCAST_CCACHE})
endif()

# A hundred test programs are linked, under sanitizers of 80 MB each: mold takes a third of ld's time.
find_program(LAYERCAST_MOLD mold)
if(LAYERCAST_MOLD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_link_options(-fuse-ld=mold)
endif()

add_library(layercast_warnings INTERFACE)
target_compile_options(layercast_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror>)
# GCC 12 sees overlapping copies in `"literal" + std::string` (its bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(layercast_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()

# The presets compile several sources of a target at once (CMAKE_UNITY_BUILD): half of the time goes into headers. There no
# type in a source's unnamed namespace is "the main file's", which GCC then warns of.
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(layercast_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()

# Of the undefined behaviour that AddressSanitizer stops anyway, the checks that cost a third of the compile time are off.
if(LAYERCAST_SANITIZE MATCHES "undefined")
  set(fewer_checks -fno-sanitize=null,vptr,object-size)
  # Nor, in rooms that compute nothing, is what a library's code has at each of its many calls: another third.
  set(LAYERCAST_FEWER_CHECKS -fno-sanitize=alignment,return,unreachable,returns-nonnull-attribute)
endif()
if(LAYERCAST_SANITIZE)
  set(LAYERCAST_SANITIZED_COMPUTING $<$<CONFIG:RelWithDebInfo>:-O1>)  # the presets optimize nothing else
  add_compile_options(-fsanitize=${LAYERCAST_SANITIZE} ${fewer_checks} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${LAYERCAST_SANITIZE})
endif()
