# Options, build type, warnings, sanitizers, and where each dependency is found. Everything comes from Debian packages;
# tools/install_packages.sh lists them.
option(BUILD_TESTING "build the tests" ON)
option(FATHOM_CPU "build the CPU backend on oneDNN (off: reference and fake backends only)" ON)
option(FATHOM_WERROR "treat warnings in fathom's own code as errors" ON)
option(FATHOM_PORTABLE "link fmt, Boost and libstdc++ into the program, for machines that have none of them" OFF)
option(FATHOM_MODULE_ONLY "build nothing but the CUDA module: needs the CUDA toolkit and no other package" OFF)
set(FATHOM_SANITIZE "" CACHE STRING "sanitizers, for example address,undefined or thread")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(FATHOM_CCACHE ccache)
if(FATHOM_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${FATHOM_CCACHE})
endif()

# GCC 12 warns falsely about std::string operator+ and insert (its bug 105651): -Wno-restrict there.
add_library(fathom_warnings INTERFACE)
target_compile_options(fathom_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wnon-virtual-dtor;-Woverloaded-virtual>
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${FATHOM_WERROR}>>:-Werror>)
if(FATHOM_SANITIZE)
  add_compile_options(-fsanitize=${FATHOM_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${FATHOM_SANITIZE})
endif()

find_package(Threads REQUIRED)
if(FATHOM_PORTABLE)
  add_link_options(-static-libstdc++ -static-libgcc)
  set(Boost_USE_STATIC_LIBS ON)
endif()
if(FATHOM_MODULE_ONLY)
  return()   # what follows belongs to the program
endif()
find_package(fmt REQUIRED)
set(FATHOM_FMT fmt::fmt)
if(FATHOM_PORTABLE)
  set(FATHOM_FMT fmt::fmt-header-only)   # Debian has no static libfmt
endif()
find_package(Boost REQUIRED COMPONENTS program_options)

# Header-only packages become interface targets; SYSTEM keeps their warnings out of ours.
function(fathom_header_package name header package)
  find_path(${name}_INCLUDE ${header})
  if(NOT ${name}_INCLUDE)
    message(FATAL_ERROR "${header} not found: install ${package} (tools/install_packages.sh installs everything)")
  endif()
  add_library(${name} INTERFACE)
  target_include_directories(${name} SYSTEM INTERFACE ${${name}_INCLUDE})
endfunction()
fathom_header_package(fathom_cli11 CLI/CLI.hpp libcli11-dev)
fathom_header_package(fathom_json nlohmann/json.hpp nlohmann-json3-dev)
fathom_header_package(fathom_random123 Random123/philox.h librandom123-dev)
fathom_header_package(fathom_xxhash xxhash.h libxxhash-dev)
target_compile_definitions(fathom_xxhash INTERFACE XXH_INLINE_ALL)

# oneDNN: Debian's dnnl config file demands OpenCL headers and aborts the configure, so look for header and library directly.
add_library(fathom_cpu_deps INTERFACE)
set(FATHOM_CPU_STATUS "off (FATHOM_CPU=OFF)")
set(FATHOM_CPU_FOLDER "")
if(FATHOM_CPU)
  find_package(OpenMP COMPONENTS CXX)
  find_path(FATHOM_DNNL_INCLUDE oneapi/dnnl/dnnl.hpp)
  find_library(FATHOM_DNNL_LIBRARY dnnl)
  if(FATHOM_DNNL_INCLUDE AND FATHOM_DNNL_LIBRARY AND OpenMP_CXX_FOUND)
    target_include_directories(fathom_cpu_deps SYSTEM INTERFACE ${FATHOM_DNNL_INCLUDE})
    target_link_libraries(fathom_cpu_deps INTERFACE ${FATHOM_DNNL_LIBRARY} OpenMP::OpenMP_CXX)
    set(FATHOM_CPU_FOLDER cpu)
    set(FATHOM_CPU_STATUS "on (oneDNN ${FATHOM_DNNL_LIBRARY}, OpenMP ${OpenMP_CXX_VERSION})")
  else()
    message(FATAL_ERROR "the CPU backend needs oneDNN and OpenMP: install libdnnl-dev, or configure with -DFATHOM_CPU=OFF")
  endif()
endif()
target_compile_definitions(fathom_cpu_deps INTERFACE FATHOM_CPU=$<BOOL:${FATHOM_CPU}>)

# Per-file instruction sets: a file *_avx2.cpp, *_avx512.cpp or *_amx.cpp is compiled for that ISA only and entered through
# run-time dispatch; everything else stays at the baseline so that the program starts on any x86-64 (or other) machine.
function(fathom_isa_flags folder)
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    return()
  endif()
  set(avx2 -mavx2 -mfma -mf16c)
  set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mprefer-vector-width=512 -Wno-maybe-uninitialized -Wno-uninitialized)  # both fire inside g++ 12 intrinsics
  set(amx ${avx512} -mavx512bf16 -mamx-tile -mamx-bf16)
  set(optimise -O3)
  if(FATHOM_SANITIZE)
    set(optimise -O1)   # instrumented -O3 takes minutes per file
  endif()
  foreach(isa avx2 avx512 amx)
    file(GLOB_RECURSE files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*_${isa}.cpp)
    set_source_files_properties(${files} PROPERTIES COMPILE_OPTIONS "${${isa}};${optimise};-fno-math-errno;-fno-trapping-math")
  endforeach()
endfunction()

function(fathom_summary)
  message(STATUS "fathom ${PROJECT_VERSION}, ${CMAKE_BUILD_TYPE}, sanitizers: ${FATHOM_SANITIZE}")
  message(STATUS "fathom: CPU backend ${FATHOM_CPU_STATUS}")
  message(STATUS "fathom: CUDA backend ${FATHOM_CUDA_STATUS}")
  message(STATUS "fathom: CUPTI ${FATHOM_CUPTI_STATUS}")
  message(STATUS "fathom: tests ${BUILD_TESTING}")
endfunction()
