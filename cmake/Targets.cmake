# One static library per folder; what it may use is what it links. The installed shared library is made
# of all of them (cmake/Install.cmake).

# Everything that needs no torch, its tests included: `cmake --build ... --target core`.
add_custom_target(core)

# layercast_library(layercast_wire SOURCES a.cc b.cc DEPENDS layercast_tensor PRIVATE_DEPENDS foo)
function(layercast_library name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  target_link_libraries(${name} PUBLIC ${ARG_DEPENDS} PRIVATE ${ARG_PRIVATE_DEPENDS} layercast_warnings)
  if(NOT ARG_TORCH)
    add_dependencies(core ${name})
    set_property(GLOBAL APPEND PROPERTY LAYERCAST_CORE_LIBRARIES ${name})
  endif()
endfunction()

# layercast_test(plan_test SOURCES load_plan_test.cc DEPENDS layercast_plan LABELS core)
# One GoogleTest program per folder.
function(layercast_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPENDS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS core)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  if("core" IN_LIST ARG_LABELS)
    add_dependencies(core ${name})
  endif()
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} GTest::gmock GTest::gtest_main layercast_warnings)
  # Test code is macros: what it tests is optimized, it need not be, and compiles in half the time.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1> $<$<CONFIG:RelWithDebInfo>:-O0>)
  # One ctest per program: the suites are quick, and starting hundreds of processes is not.
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
endfunction()

# layercast_program(rl_loop SOURCES main.cc DEPENDS layercast_engine)
# A program for people: it lands in bin/ of the build folder.
function(layercast_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} layercast_warnings)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
endfunction()
