# Installs the build into an empty prefix, then configures, builds and runs the project in outside/ against it.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "failed (${status}): ${ARGN}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
run(${CMAKE_COMMAND} -S ${OUTSIDE} -B ${WORK}/build -G ${GENERATOR}
  -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}
  -DCMAKE_PREFIX_PATH=${WORK}/prefix -DTORCH=${TORCH})
run(${CMAKE_COMMAND} --build ${WORK}/build -j 2)
run(${WORK}/build/outside)
if(EXISTS ${WORK}/prefix/bin/layercast)
  run(${WORK}/prefix/bin/layercast --help)
endif()
