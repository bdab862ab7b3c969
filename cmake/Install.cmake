# The installed tree: one shared library `layercast` that exports the public API and hides the rest, the headers of
# include/layercast, and what find_package(Layercast) reads (cli/ adds the program). No torch: who includes layercast/torch/*.h
# brings the torch that their program links anyway.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# It is made of every core library's objects, and links whatever those link outside this project.
get_property(core_libraries GLOBAL PROPERTY LAYERCAST_CORE_LIBRARIES)
set(objects "")
set(outside "")
foreach(library ${core_libraries})
  list(APPEND objects $<TARGET_OBJECTS:${library}>)
  get_target_property(linked ${library} LINK_LIBRARIES)
  list(FILTER linked EXCLUDE REGEX "^layercast_")
  list(APPEND outside ${linked})
endforeach()
list(REMOVE_DUPLICATES outside)

add_library(layercast SHARED ${objects})
add_library(Layercast::layercast ALIAS layercast)
if(NOT LAYERCAST_SANITIZE)  # no test runs it there
  add_dependencies(core layercast)
endif()
set_target_properties(layercast PROPERTIES
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} LINKER_LANGUAGE CXX
  LINK_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/exports.map)
target_link_libraries(layercast PRIVATE ${outside})
target_link_options(layercast PRIVATE LINKER:--version-script=${CMAKE_CURRENT_LIST_DIR}/exports.map)
if(NOT LAYERCAST_SANITIZE)
  target_link_options(layercast PRIVATE LINKER:--no-undefined)
endif()
target_include_directories(layercast PUBLIC
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(layercast PUBLIC cxx_std_20)

# Components: Library is all that find_package needs, Programs is what cli/ installs.
install(TARGETS layercast EXPORT LayercastTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT Library NAMELINK_COMPONENT Library)
install(DIRECTORY include/layercast DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT Library
  FILES_MATCHING PATTERN "*.h")

# The build tree can be found too, with Layercast_DIR.
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Layercast)
install(EXPORT LayercastTargets NAMESPACE Layercast:: DESTINATION ${package_folder} COMPONENT Library)
export(EXPORT LayercastTargets NAMESPACE Layercast:: FILE ${PROJECT_BINARY_DIR}/LayercastTargets.cmake)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/LayercastConfigVersion.cmake COMPATIBILITY SameMinorVersion)
configure_file(${CMAKE_CURRENT_LIST_DIR}/LayercastConfig.cmake ${PROJECT_BINARY_DIR}/LayercastConfig.cmake COPYONLY)
install(FILES ${PROJECT_BINARY_DIR}/LayercastConfig.cmake ${PROJECT_BINARY_DIR}/LayercastConfigVersion.cmake
  DESTINATION ${package_folder} COMPONENT Library)
