# What captures the decode step. A program that links this room names one of these as well: layercast_cuda_graph, or, if its
# weights are in host memory, layercast_no_cuda_graph, which spares it the loading of libtorch's CUDA half. They are objects,
# so that their place among the libraries does not matter.
list(FILTER sources EXCLUDE REGEX "/cuda_graph(_absent)?[.]cc$")
add_library(layercast_no_cuda_graph OBJECT ${folder}/cuda_graph_absent.cc)
target_link_libraries(layercast_no_cuda_graph PUBLIC layercast_base PRIVATE layercast_warnings)
if(TARGET layercast::libtorch_cuda)
  add_library(layercast_cuda_graph OBJECT ${folder}/cuda_graph.cc)
  target_link_libraries(layercast_cuda_graph PUBLIC layercast_base PRIVATE layercast::libtorch_cuda layercast_warnings)
endif()
