# Without cpp-httplib there is no server, and whoever asks for one is told so.
if(LAYERCAST_HAVE_HTTPLIB)
  list(FILTER sources EXCLUDE REGEX "/http_exchange_absent[.]cc$")
else()
  list(FILTER sources EXCLUDE REGEX "/http_exchange[.]cc$")
endif()
