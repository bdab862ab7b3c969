# Without CUDA there is no stream to open, which reload_stream_absent.cc says.
if(LAYERCAST_HAVE_CUDA)
  list(FILTER sources EXCLUDE REGEX "_absent[.]cc$")
else()
  list(FILTER sources EXCLUDE REGEX "/cuda_reload_stream[.]cc$|[.]cu$")
endif()
