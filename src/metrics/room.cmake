# Without prometheus-cpp there is no endpoint, and whoever asks for one is told so.
if(LAYERCAST_HAVE_PROMETHEUS)
  list(FILTER sources EXCLUDE REGEX "/metrics_endpoint_absent[.]cc$")
else()
  list(FILTER sources EXCLUDE REGEX "/metrics_endpoint[.]cc$")
endif()
