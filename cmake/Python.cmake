# Tests written in Python: oracles, and programs driven end to end. They need torch, transformers and pytest, which
# scripts/setup puts into .venv; without those they are left out, and configuring says so.
#   LAYERCAST_PYTHON  the interpreter; by default .venv's, then python3
set(LAYERCAST_HAVE_PYTHON OFF)
foreach(python ${LAYERCAST_PYTHON} ${PROJECT_SOURCE_DIR}/.venv/bin/python python3)
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

# The package `layercast` is built for the Python that builds it as a wheel, or else for that of the tests.
set(LAYERCAST_HAVE_PYTHON_PACKAGE OFF)
if(LAYERCAST_PYTHON_PACKAGE AND (SKBUILD OR LAYERCAST_HAVE_PYTHON) AND NOT LAYERCAST_SANITIZE)
  if(NOT SKBUILD)
    set(Python_EXECUTABLE ${LAYERCAST_PYTHON_PROGRAM})
  endif()
  find_package(Python 3.11 COMPONENTS Interpreter Development.Module OPTIONAL_COMPONENTS Development.SABIModule)
  if(Python_FOUND)
    execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  endif()
  if(Python_FOUND AND NOT failed)
    set(LAYERCAST_HAVE_PYTHON_PACKAGE ON)
    message(STATUS "Python package: for ${Python_VERSION}")
    # A wheel for later Pythons too takes the stable ABI. nanobind looks for this target, which cmake before 3.26 does not
    # know; the headers are the same.
    if(SKBUILD_SABI_VERSION AND NOT TARGET Python::SABIModule)
      add_library(Python::SABIModule ALIAS Python::Module)
    endif()
  endif()
endif()
if(LAYERCAST_PYTHON_PACKAGE STREQUAL "ON" AND NOT LAYERCAST_HAVE_PYTHON_PACKAGE)
  message(FATAL_ERROR "Python package: needs Python 3.11 or newer with its headers, and nanobind")
elseif(NOT LAYERCAST_HAVE_PYTHON_PACKAGE)
  message(STATUS "Python package: left out")
endif()

# layercast_pytest(oracle_test FILES oracle/test_oracle.py oracle/test_recipes.py LABELS torch [TIMEOUT 240] [COST 90]
#                  [ARGUMENTS -k name] [ENVIRONMENT A=b])
# One ctest of one folder's files, or of a single FILE: torch and transformers are loaded once, and what one file computes
# is there for the next. Files are relative to tests/. TIMEOUT is in seconds, by default 120 for each file; COST is about
# how many seconds it takes, which long ones say, to be begun first. The checkpoints that tests make are kept in the build
# folder.
function(layercast_pytest name)
  cmake_parse_arguments(ARG "" "FILE;TIMEOUT;COST" "FILES;LABELS;ARGUMENTS;ENVIRONMENT" ${ARGN})
  list(APPEND ARG_FILES ${ARG_FILE})
  if(NOT ARG_TIMEOUT)
    list(LENGTH ARG_FILES count)
    math(EXPR ARG_TIMEOUT "120 * ${count}")
  endif()
  list(TRANSFORM ARG_FILES PREPEND ${PROJECT_SOURCE_DIR}/tests/)
  add_test(NAME ${name}
    COMMAND ${LAYERCAST_PYTHON_PROGRAM} -m pytest -q -rs -p no:cacheprovider ${ARG_FILES} ${ARG_ARGUMENTS})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT
    "LAYERCAST_TEST_CACHE=${PROJECT_BINARY_DIR}/test_cache;OMP_NUM_THREADS=1;${ARG_ENVIRONMENT}"
    PROCESSORS ${LAYERCAST_SLOTS_TO_COMPUTE})
  if(ARG_COST)
    set_tests_properties(${name} PROPERTIES COST ${ARG_COST})
  endif()
endfunction()
