# Tests written in Python: oracles, and programs driven end to end. They need torch, transformers and pytest, which
# scripts/setup puts into .venv; without those they are left out, and configuring says so.
#   LAYERCAST_PYTHON  the interpreter; by default .venv's, then python3
set(LAYERCAST_HAVE_PYTHON OFF)
foreach(python ${LAYERCAST_PYTHON} ${CMAKE_SOURCE_DIR}/.venv/bin/python python3)
  execute_process(COMMAND ${python} -c
    "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ('torch', 'transformers', 'safetensors', 'pytest'))))"
    RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(NOT failed)
    set(LAYERCAST_PYTHON_PROGRAM ${python})
    set(LAYERCAST_HAVE_PYTHON ON)
    break()
  endif()
endforeach()
if(NOT LAYERCAST_HAVE_PYTHON)
  message(STATUS "Python: none with torch, transformers, safetensors and pytest; its tests are left out")
endif()

# layercast_pytest(oracle_test FILE oracle/test_oracle.py LABELS torch [TIMEOUT 120] [ARGUMENTS -k name] [ENVIRONMENT A=b])
# FILE is relative to tests/. One ctest per file. The checkpoints that tests make are kept in the build folder.
function(layercast_pytest name)
  cmake_parse_arguments(ARG "" "FILE;TIMEOUT" "LABELS;ARGUMENTS;ENVIRONMENT" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_test(NAME ${name}
    COMMAND ${LAYERCAST_PYTHON_PROGRAM} -m pytest -q -p no:cacheprovider ${PROJECT_SOURCE_DIR}/tests/${ARG_FILE}
      ${ARG_ARGUMENTS})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT
    "LAYERCAST_TEST_CACHE=${PROJECT_BINARY_DIR}/test_cache;OMP_NUM_THREADS=1;${ARG_ENVIRONMENT}")
endfunction()
