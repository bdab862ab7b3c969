# What find_package(Layercast) reads.
include(${CMAKE_CURRENT_LIST_DIR}/LayercastTargets.cmake)
foreach(component ${Layercast_FIND_COMPONENTS})
  if(Layercast_FIND_REQUIRED_${component})
    set(Layercast_FOUND FALSE)
    set(Layercast_NOT_FOUND_MESSAGE "Layercast has no components: expected none to be asked for, got '${component}'")
  endif()
endforeach()
