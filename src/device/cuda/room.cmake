# Without CUDA a probe alone is left, which says so.
if(LAYERCAST_HAVE_CUDA)
  list(FILTER sources EXCLUDE REGEX "_absent[.]cc$")
else()
  list(FILTER sources INCLUDE REGEX "_absent[.]cc$")
endif()
