# The CUDA backend: a module library that the program opens at run time (kernels/cuda/module.hpp), so that fathom runs on machines
# without CUDA and starts as fast as before. FATHOM_CUDA=AUTO builds it where nvcc, cublasLt and cupti.h of CUDA 13 are found and
# says so when not; ON demands it; OFF leaves it out.
set(FATHOM_CUDA AUTO CACHE STRING "CUDA backend: AUTO, ON or OFF")
set_property(CACHE FATHOM_CUDA PROPERTY STRINGS AUTO ON OFF)

# What program and module must agree on: a hash of the headers that both compile.
file(GLOB cuda_headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cuda/*.hpp)
list(SORT cuda_headers)
set(hashes ${PROJECT_VERSION})
foreach(header IN LISTS cuda_headers)
  file(SHA256 ${header} hash)
  string(APPEND hashes ${hash})
endforeach()
string(SHA256 FATHOM_CUDA_BUILD_ID "${hashes}")
string(SUBSTRING ${FATHOM_CUDA_BUILD_ID} 0 16 FATHOM_CUDA_BUILD_ID)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${cuda_headers})
set_property(SOURCE ${CMAKE_SOURCE_DIR}/kernels/cuda_host/loader.cpp APPEND PROPERTY COMPILE_DEFINITIONS FATHOM_CUDA_BUILD_ID="${FATHOM_CUDA_BUILD_ID}")

set(FATHOM_CUDA_STATUS "off (FATHOM_CUDA=OFF)")
set(FATHOM_CUDA_BUILT OFF)
if(FATHOM_CUDA)
  set(FATHOM_CUDA_STATUS "off (nvcc of CUDA 13 not found)")
  if(NOT CMAKE_CUDA_COMPILER)   # check_language(CUDA) finds nvcc only on PATH: look further
    find_program(FATHOM_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
    if(FATHOM_NVCC)
      set(CMAKE_CUDA_COMPILER "${FATHOM_NVCC}")
    endif()
  endif()
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)   # before enable_language, which otherwise fixes sm_75
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100)   # SASS for 80 and 90; SASS and PTX for 100 and later
    endif()
    enable_language(CUDA)
    # CMake 3.25 knows no C++20 option for nvcc and silently compiles C++17 (kernels/cuda checks __cplusplus).
    foreach(kind STANDARD EXTENSION)
      if(NOT DEFINED CMAKE_CUDA20_${kind}_COMPILE_OPTION)
        set(CMAKE_CUDA20_${kind}_COMPILE_OPTION -std=c++20)
      endif()
    endforeach()
    find_package(CUDAToolkit 13 QUIET)
    set(missing "")
    if(NOT CUDAToolkit_FOUND)
      list(APPEND missing "a CUDA 13 toolkit")
    else()
      if(NOT TARGET CUDA::cublasLt)
        list(APPEND missing cublasLt)
      endif()
      if(NOT CUDAToolkit_CUPTI_INCLUDE_DIR)
        list(APPEND missing cupti.h)
      endif()
    endif()
    if(missing)
      list(JOIN missing ", " missing)
      set(FATHOM_CUDA_STATUS "off (${CMAKE_CUDA_COMPILER} found, but not ${missing})")
    else()
      set(FATHOM_CUDA_BUILT ON)
      list(JOIN CMAKE_CUDA_ARCHITECTURES " " architectures)
      set(FATHOM_CUDA_STATUS "on (nvcc ${CMAKE_CUDA_COMPILER_VERSION}, sm ${architectures})")
    endif()
  endif()
  if(NOT FATHOM_CUDA_BUILT AND NOT FATHOM_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "FATHOM_CUDA=${FATHOM_CUDA}, but the CUDA backend is ${FATHOM_CUDA_STATUS}; set CUDACXX to nvcc, or use -DFATHOM_CUDA=OFF")
  endif()
endif()

if(FATHOM_CUDA_BUILT)
  # Rows and columns of each tile that cublasLt names, from the header of the toolkit that is used.
  file(STRINGS ${CUDAToolkit_INCLUDE_DIR}/cublasLt.h tiles REGEX "CUBLASLT_MATMUL_TILE_[0-9]+x[0-9]+ *= *[0-9]+")
  set(text "")
  foreach(tile IN LISTS tiles)
    string(REGEX REPLACE ".*TILE_([0-9]+)x([0-9]+) *= *([0-9]+).*" "{\\3, \\1, \\2},\n" line "${tile}")
    string(APPEND text "${line}")
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/cuda/cublaslt_tiles.inl CONTENT "${text}" @ONLY)
  file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cuda/*.cu ${CMAKE_SOURCE_DIR}/kernels/cuda/*.cpp)
  set(launcher ${CMAKE_CUDA_COMPILER_LAUNCHER})
  if(FATHOM_CCACHE AND NOT launcher)
    set(launcher ${FATHOM_CCACHE})
  endif()
  add_library(fathom_cuda MODULE ${cuda_sources})
  set_target_properties(fathom_cuda PROPERTIES UNITY_BUILD OFF)   # few host files, each with its own anonymous types
  # Everything but the entry is hidden; the runtime is inside, so nothing else in the process meets a second one.
  set_target_properties(fathom_cuda PROPERTIES CUDA_RUNTIME_LIBRARY Static CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden
    CUDA_COMPILER_LAUNCHER "${CMAKE_SOURCE_DIR}/tools/cmake/ptxas_log.sh;${launcher}"
    VISIBILITY_INLINES_HIDDEN ON CUDA_STANDARD 20 POSITION_INDEPENDENT_CODE ON LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
    BUILD_RPATH "${CUDAToolkit_LIBRARY_DIR}" INSTALL_RPATH "${CUDAToolkit_LIBRARY_DIR}")
  target_include_directories(fathom_cuda PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated/cuda)
  target_include_directories(fathom_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} ${CUDAToolkit_CUPTI_INCLUDE_DIR})
  target_link_libraries(fathom_cuda PRIVATE CUDA::cudart_static CUDA::cublasLt fathom_warnings ${CMAKE_DL_LIBS} Threads::Threads)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/cuda/exports.map CONTENT "{ global: fathom_cuda_module; local: *; };\n" @ONLY)
  target_link_options(fathom_cuda PRIVATE -Wl,--version-script=${CMAKE_BINARY_DIR}/generated/cuda/exports.map -Wl,-z,defs)
  # Of the one file that tells them: kernels are not compiled again for a header that they do not include.
  set_property(SOURCE ${CMAKE_SOURCE_DIR}/kernels/cuda/device.cpp APPEND PROPERTY COMPILE_DEFINITIONS FATHOM_CUDA_BUILD_ID="${FATHOM_CUDA_BUILD_ID}" FATHOM_CUDA_ARCHITECTURES="${architectures}")
  # Spills and local memory are errors: a kernel that needs them is rewritten, not shipped slow.
  target_compile_options(fathom_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-lineinfo;--expt-relaxed-constexpr;-Xptxas=-v,-warn-spills,-warn-lmem-usage;-Xcompiler=-Wall,-Wextra>
    $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${FATHOM_WERROR}>>:--Werror=all-warnings>)
  install(TARGETS fathom_cuda LIBRARY DESTINATION lib/fathom)
endif()
