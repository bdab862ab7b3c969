# The installed tree: one shared library `layercast` that exports the public API and hides the rest.
get_property(core_libraries GLOBAL PROPERTY LAYERCAST_CORE_LIBRARIES)
list(TRANSFORM core_libraries REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>")
add_library(layercast SHARED ${core_libraries})
add_library(Layercast::layercast ALIAS layercast)
set_target_properties(layercast PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINKER_LANGUAGE CXX)
target_link_libraries(layercast PRIVATE Threads::Threads spdlog::spdlog cppzmq hwy::hwy)
target_include_directories(layercast PUBLIC
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
target_compile_features(layercast PUBLIC cxx_std_20)

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
install(TARGETS layercast EXPORT LayercastTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/layercast DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT LayercastTargets NAMESPACE Layercast:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Layercast)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/LayercastConfigVersion.cmake COMPATIBILITY SameMinorVersion)
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/LayercastConfig.cmake
  "include(\${CMAKE_CURRENT_LIST_DIR}/LayercastTargets.cmake)\n")
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/LayercastConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/LayercastConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Layercast)
