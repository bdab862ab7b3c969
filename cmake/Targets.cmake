# How libraries, tests and programs are compiled. The libraries are the rooms (Rooms.cmake).

# Everything that needs no torch, its tests included: `cmake --build ... --target core`.
add_custom_target(core)

# What compiles slowly because of its templates (JSON, command lines, test macros), and is never waited for when it runs.
set(LAYERCAST_COLD $<$<CONFIG:Release>:-O1> $<$<CONFIG:RelWithDebInfo>:-O0>)

# How our own sources are compiled. Those that Highway compiles for each instruction set, by including them again and again,
# are never two at once.
function(layercast_configure library)
  foreach(source ${ARGN})
    if(source MATCHES "[.]cc$")
      file(STRINGS ${source} highway REGEX "define HWY_TARGET_INCLUDE" LIMIT_COUNT 1)
      if(highway)
        set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      endif()
    elseif(LAYERCAST_CUDA STREQUAL "SIMULATED")  # CUDA sources are compiled for the host
      set_source_files_properties(${source} PROPERTIES LANGUAGE CXX SKIP_UNITY_BUILD_INCLUSION ON
        COMPILE_OPTIONS "-ffp-contract=off;-include;${PROJECT_SOURCE_DIR}/tests/simulated_cuda/simulated_kernels.h")
    endif()
  endforeach()
  target_include_directories(${library} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  # CUDA kernels do every addition and multiplication by itself, as the CPU does: nothing is fused that is not written so.
  target_compile_options(${library} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false>)
  target_link_libraries(${library} PRIVATE layercast_warnings)
endfunction()

# Of the test presets' five slots (`jobs`), a test takes two, and one that mostly waits takes one: beside two that compute
# there is always room for one that waits.
set(LAYERCAST_SLOTS_TO_COMPUTE 2)
set(LAYERCAST_SLOTS_TO_WAIT 1)

# layercast_test(fuzz_test SOURCES checkpoint_fuzz_test.cc DEPENDS layercast_plan LABELS core [SINGLE_THREADED]
#                [THREADS_SEEN_ELSEWHERE] [WAITS] [TIMEOUT 120] [COST 60])
# A GoogleTest program. SINGLE_THREADED: neither it nor what it calls starts a thread, so there is nothing in it for
# ThreadSanitizer; nor is there if other programs have the same threads. WAITS: most of the time it waits, for silence to be noticed, say. TIMEOUT and COST as of
# layercast_pytest (Python.cmake).
function(layercast_test name)
  cmake_parse_arguments(ARG "SINGLE_THREADED;THREADS_SEEN_ELSEWHERE;WAITS" "TIMEOUT;COST" "SOURCES;DEPENDS;LABELS" ${ARGN})
  if((ARG_SINGLE_THREADED OR ARG_THREADS_SEEN_ELSEWHERE) AND LAYERCAST_SANITIZE MATCHES "thread")
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
  target_link_libraries(${name} PRIVATE
    ${ARG_DEPENDS} layercast_test_support GTest::gmock GTest::gtest_main layercast_warnings)
  target_compile_options(${name} PRIVATE ${LAYERCAST_COLD})
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

# layercast_room_test(src/session/fetch [DEPENDS layercast_x] [SOURCES a.cc] [EXCEPT b.cc] [LABELS core gpu] [...])
# The tests of a room: session_fetch_test is made of what lies in tests/src/session/fetch, and of SOURCES; it links the room,
# and has the label session.fetch. Everything else is as of layercast_test().
function(layercast_room_test room)
  cmake_parse_arguments(ARG "" "" "DEPENDS;SOURCES;EXCEPT;LABELS" ${ARGN})
  layercast_target_of(library ${room})
  string(REGEX REPLACE "^layercast_" "" name ${library})
  string(REGEX REPLACE "^(src|engine_side)/" "" label ${room})
  string(REPLACE "/" "." label ${label})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${room}/*.cc)
  foreach(left_out ${ARG_EXCEPT})
    list(REMOVE_ITEM sources ${PROJECT_SOURCE_DIR}/tests/${room}/${left_out})
  endforeach()
  if(NOT ARG_LABELS)
    set(ARG_LABELS core)
  endif()
  layercast_test(${name}_test SOURCES ${sources} ${ARG_SOURCES} DEPENDS ${library} ${ARG_DEPENDS}
    LABELS ${ARG_LABELS} ${label} ${ARG_UNPARSED_ARGUMENTS})
  set_property(GLOBAL APPEND PROPERTY LAYERCAST_TESTED_ROOMS ${room})
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
