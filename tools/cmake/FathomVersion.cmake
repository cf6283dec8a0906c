# What `fathom --version` says: version, commit, and what is built in. The commit is read at build time, by this file run as a script (-P):
# it rewrites the header only when the answer changed, so a build without a new commit recompiles nothing. Outside a git checkout (a source
# archive) the commit is left out.
if(CMAKE_SCRIPT_MODE_FILE)
  set(commit "")
  find_program(git git)
  if(git AND EXISTS ${SOURCE}/.git)
    execute_process(COMMAND ${git} -C ${SOURCE} describe --always --dirty=+ --abbrev=12 --exclude=*
      OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  set(text "#define FATHOM_COMMIT \"${commit}\"\n")
  set(old "")
  if(EXISTS ${OUTPUT})
    file(READ ${OUTPUT} old)
  endif()
  if(NOT text STREQUAL old)
    file(WRITE ${OUTPUT} "${text}")
  endif()
  return()
endif()

add_custom_target(fathom_commit
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_SOURCE_DIR} -DOUTPUT=${CMAKE_BINARY_DIR}/generated/fathom_commit.hpp -P ${CMAKE_CURRENT_LIST_FILE}
  BYPRODUCTS ${CMAKE_BINARY_DIR}/generated/fathom_commit.hpp COMMENT "" VERBATIM)
add_dependencies(fathom_tools fathom_commit)
string(REPLACE "\"" "'" cuda_status "${FATHOM_CUDA_STATUS}")
set_property(SOURCE ${CMAKE_SOURCE_DIR}/tools/version.cpp APPEND PROPERTY COMPILE_DEFINITIONS
  FATHOM_VERSION="${PROJECT_VERSION}" FATHOM_BUILD_TYPE="${CMAKE_BUILD_TYPE}" FATHOM_COMPILER="${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
  FATHOM_SANITIZERS="${FATHOM_SANITIZE}" FATHOM_CUDA_STATUS="${cuda_status}")
set_property(SOURCE ${CMAKE_SOURCE_DIR}/tools/version.cpp APPEND PROPERTY INCLUDE_DIRECTORIES ${CMAKE_BINARY_DIR}/generated)
