# One static library per folder; what it may use is what it links. The installed shared library is made
# of all of them (cmake/Install.cmake).

# Everything that needs no torch, its tests included: `cmake --build ... --target core`.
add_custom_target(core)

# What compiles slowly because of its templates (JSON, command lines, test macros), and is never waited for when it runs.
set(LAYERCAST_COLD $<$<CONFIG:Release>:-O1>)

# layercast_library(layercast_wire SOURCES a.cc b.cc DEPENDS layercast_tensor PRIVATE_DEPENDS foo [COLD])
# KERNELS: sources that Highway compiles for each instruction set, by including them again and again: never two at once.
function(layercast_library name)
  cmake_parse_arguments(ARG "TORCH;COLD" "" "SOURCES;KERNELS;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES} ${ARG_KERNELS})
  foreach(kernel ${ARG_KERNELS})
    set_source_files_properties(${kernel} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endforeach()
  if(LAYERCAST_CUDA STREQUAL "SIMULATED")  # CUDA sources are compiled for the host
    list(FILTER ARG_SOURCES INCLUDE REGEX "[.]cu$")
    set_source_files_properties(${ARG_SOURCES} PROPERTIES LANGUAGE CXX SKIP_UNITY_BUILD_INCLUSION ON
      COMPILE_OPTIONS "-ffp-contract=off;-include;${PROJECT_SOURCE_DIR}/tests/simulated_cuda/kernels.h")
  endif()
  target_include_directories(${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  target_link_libraries(${name} PUBLIC ${ARG_DEPENDS} PRIVATE ${ARG_PRIVATE_DEPENDS} layercast_warnings)
  if(ARG_COLD)
    target_compile_options(${name} PRIVATE ${LAYERCAST_COLD})
  endif()
  if(NOT ARG_TORCH)
    add_dependencies(core ${name})
    set_property(GLOBAL APPEND PROPERTY LAYERCAST_CORE_LIBRARIES ${name})
  endif()
endfunction()

# Of the test presets' five slots (`jobs`), a test takes two, and one that mostly waits takes one: beside two that compute
# there is always room for one that waits.
set(LAYERCAST_SLOTS_TO_COMPUTE 2)
set(LAYERCAST_SLOTS_TO_WAIT 1)

# layercast_test(plan_test SOURCES load_plan_test.cc DEPENDS layercast_plan LABELS core [SINGLE_THREADED] [WAITS]
#                [TIMEOUT 120] [COST 60])
# One GoogleTest program per folder. SINGLE_THREADED: neither it nor what it calls starts a thread, so there is nothing in
# it for ThreadSanitizer. WAITS: most of the time it waits, for silence to be noticed, say. TIMEOUT and COST as of
# layercast_pytest (Python.cmake).
function(layercast_test name)
  cmake_parse_arguments(ARG "SINGLE_THREADED;WAITS" "TIMEOUT;COST" "SOURCES;DEPENDS;LABELS" ${ARGN})
  if(ARG_SINGLE_THREADED AND LAYERCAST_SANITIZE MATCHES "thread")
    return()
  endif()
  # CUDA itself does not work beside AddressSanitizer, which guards addresses that it wants: all cases would skip
  # themselves.
  if("gpu" IN_LIST ARG_LABELS AND LAYERCAST_SANITIZE AND NOT LAYERCAST_CUDA STREQUAL "SIMULATED")
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(LAYERCAST_SANITIZE)  # which slows programs down; the limit is there for one that hangs
    math(EXPR ARG_TIMEOUT "4 * ${ARG_TIMEOUT}")
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS core)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  if("core" IN_LIST ARG_LABELS)
    add_dependencies(core ${name})
  endif()
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} GTest::gmock GTest::gtest_main layercast_warnings)
  target_compile_options(${name} PRIVATE ${LAYERCAST_COLD} $<$<CONFIG:RelWithDebInfo>:-O0>)
  if(LAYERCAST_SANITIZE MATCHES "undefined")  # what is tested is checked for it; in the tests it costs a third of the compile time
    target_compile_options(${name} PRIVATE -fno-sanitize=undefined)
  endif()
  if("core" IN_LIST ARG_LABELS)
    target_precompile_headers(${name} REUSE_FROM layercast_test_headers)  # tests/support
    # GCC forgets that these headers are the system's, and then sees copies in std::string that are out of bounds.
    target_compile_options(${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds -Wno-stringop-overflow>)
  endif()
  # One ctest per program: the suites are quick, and starting hundreds of processes is not.
  add_test(NAME ${name} COMMAND ${name})
  # Torch's threads spin while they wait for one another, and tests share their cores.
  set(environment OMP_NUM_THREADS=1)
  if(TARGET layercast_simulated_nccl)
    list(APPEND environment LAYERCAST_NCCL_LIBRARY=$<TARGET_FILE:layercast_simulated_nccl>)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT "${environment}"
    PROCESSORS ${LAYERCAST_SLOTS_TO_COMPUTE})
  if(ARG_WAITS)
    set_tests_properties(${name} PROPERTIES PROCESSORS ${LAYERCAST_SLOTS_TO_WAIT})
  endif()
  if(ARG_COST)
    set_tests_properties(${name} PROPERTIES COST ${ARG_COST})
  endif()
  if("gpu" IN_LIST ARG_LABELS)  # all of its cases skipped themselves: no device
    set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "PASSED  . 0 tests.\n.  SKIPPED ")
  endif()
endfunction()

# layercast_program(rl_loop SOURCES main.cc DEPENDS layercast_engine)
# A program for people: it lands in bin/ of the build folder. The work is in the libraries.
function(layercast_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} layercast_warnings)
  target_compile_options(${name} PRIVATE ${LAYERCAST_COLD})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
endfunction()
