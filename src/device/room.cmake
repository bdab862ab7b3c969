# Without CUDA there is no stream to open, which cuda_absent.cc says.
if(LAYERCAST_HAVE_CUDA)
  list(FILTER sources EXCLUDE REGEX "_absent[.]cc$")
else()
  list(FILTER sources EXCLUDE REGEX "/cuda_(channel_device|device_stream)[.]cc$")
endif()
