# Which channels this build has.
foreach(optional CUDA NCCL UCX)
  set_property(SOURCE ${folder}/transports.cc ${folder}/library_versions.cc APPEND PROPERTY
    COMPILE_DEFINITIONS LAYERCAST_HAVE_${optional}=$<BOOL:${LAYERCAST_HAVE_${optional}}>)
endforeach()
