# Without cpp-httplib nothing is sent, and whoever asks for it is told so.
if(LAYERCAST_HAVE_HTTPLIB)
  list(FILTER sources EXCLUDE REGEX "/otlp_sender_absent[.]cc$")
else()
  list(FILTER sources EXCLUDE REGEX "/otlp_sender[.]cc$")
endif()
