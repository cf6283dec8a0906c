# What `cmake --install` puts where, the CMake package, and the Debian packages.
#
#   bin/fathom                    the program (and lib/fathom/ for the module of the CUDA backend)
#   share/fathom/                 networks, machines, the schema of records
#   share/man, share/bash-completion, ...   written by the program itself, so they are what it says
#   lib/, include/fathom/         the calculator (lib/ and models/) for other programs: find_package(fathom), fathom::calculator
#
# Run as a script (-P) this file asks the program for its pages.
if(CMAKE_SCRIPT_MODE_FILE)
  function(ask output)
    execute_process(COMMAND ${FATHOM} --no-defaults ${ARGN} OUTPUT_VARIABLE text RESULT_VARIABLE failed)
    if(failed)
      message(FATAL_ERROR "${FATHOM} ${ARGN} failed: ${failed}")
    endif()
    file(WRITE ${OUTPUT}/${output} "${text}")
  endfunction()
  file(REMOVE_RECURSE ${OUTPUT})
  ask(bash-completion/completions/fathom completion bash)
  ask(zsh/vendor-completions/_fathom completion zsh)
  ask(fish/vendor_completions.d/fathom.fish completion fish)
  ask(man/man1/fathom.1 completion man)
  execute_process(COMMAND ${FATHOM} --no-defaults --help OUTPUT_VARIABLE help)
  string(REGEX MATCHALL "\n  [a-z]+  " commands "${help}")
  foreach(command IN LISTS commands)
    string(STRIP "${command}" command)
    ask(man/man1/fathom-${command}.1 completion man ${command})
  endforeach()
  find_program(gzip gzip)
  if(gzip)   # as Debian asks; -n leaves out the time, so that two builds give the same file
    file(GLOB pages ${OUTPUT}/man/man1/*.1)
    execute_process(COMMAND ${gzip} -9nf ${pages} COMMAND_ERROR_IS_FATAL ANY)
  endif()
  return()
endif()

include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/fathom)

# ---- the program ----
install(TARGETS fathom RUNTIME COMPONENT program)
install(CODE "execute_process(COMMAND \${CMAKE_COMMAND} -DFATHOM=$<TARGET_FILE:fathom> -DOUTPUT=${CMAKE_BINARY_DIR}/pages
  -P ${CMAKE_CURRENT_LIST_FILE} COMMAND_ERROR_IS_FATAL ANY)" COMPONENT program)
install(DIRECTORY ${CMAKE_BINARY_DIR}/pages/ DESTINATION ${CMAKE_INSTALL_DATAROOTDIR} COMPONENT program)
install(DIRECTORY models/networks models/machines DESTINATION ${CMAKE_INSTALL_DATADIR}/fathom COMPONENT program FILES_MATCHING PATTERN "*.ini" PATTERN "*.gpu")
install(FILES reports/record.schema.json DESTINATION ${CMAKE_INSTALL_DATADIR}/fathom COMPONENT program)
install(FILES README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
install(FILES reports/README.md reports/tutorial.md reports/accuracy.md reports/reading.md reports/peers.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/reports COMPONENT program)   # as the README links them
install(DIRECTORY reports/samples DESTINATION ${CMAKE_INSTALL_DOCDIR}/reports COMPONENT program)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright COMPONENT program)
# Debian asks for a changelog; the history itself is the repository's.
find_program(gzip gzip)
if(gzip)
  file(WRITE ${CMAKE_BINARY_DIR}/generated/changelog "fathom (${PROJECT_VERSION}) unstable; urgency=low

  * Release ${PROJECT_VERSION}; the repository holds the history.

 -- the fathom authors <fathom@example.org>  Mon, 01 Jan 2024 00:00:00 +0000
")
  execute_process(COMMAND ${gzip} -9nfk ${CMAKE_BINARY_DIR}/generated/changelog COMMAND_ERROR_IS_FATAL ANY)
  install(FILES ${CMAKE_BINARY_DIR}/generated/changelog.gz DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
endif()

# ---- the calculator as a library ----
set_target_properties(fathom_lib PROPERTIES EXPORT_NAME lib)
set_target_properties(fathom_models PROPERTIES EXPORT_NAME calculator)
# Builds what `cmake --install` copies.
add_custom_target(installed DEPENDS fathom fathom_lib fathom_models)
if(TARGET fathom_cuda)
  add_dependencies(installed fathom_cuda)
endif()
install(TARGETS fathom_lib fathom_models EXPORT fathomTargets ARCHIVE COMPONENT development INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fathom)
target_compile_features(fathom_lib PUBLIC cxx_std_20)
install(DIRECTORY lib models DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fathom COMPONENT development FILES_MATCHING PATTERN "*.hpp"
  PATTERN "networks" EXCLUDE PATTERN "machines" EXCLUDE)
install(EXPORT fathomTargets NAMESPACE fathom:: DESTINATION ${package_folder} COMPONENT development)
file(WRITE ${CMAKE_BINARY_DIR}/generated/fathomConfig.cmake.in "@PACKAGE_INIT@
include(CMakeFindDependencyMacro)
find_dependency(fmt)
find_dependency(Boost COMPONENTS program_options)
include(\${CMAKE_CURRENT_LIST_DIR}/fathomTargets.cmake)
check_required_components(fathom)
")
configure_package_config_file(${CMAKE_BINARY_DIR}/generated/fathomConfig.cmake.in ${CMAKE_BINARY_DIR}/generated/fathomConfig.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/generated/fathomConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/generated/fathomConfig.cmake ${CMAKE_BINARY_DIR}/generated/fathomConfigVersion.cmake DESTINATION ${package_folder} COMPONENT development)
install(DIRECTORY tests/package/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples/calculator COMPONENT development)

# ---- Debian packages: `cpack -G DEB` in the build folder ----
set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL program development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_CONTACT "the fathom authors <fathom@example.org>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME fathom)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)   # Depends as dpkg-shlibdeps finds it
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS "gnuplot, libfathom-dev")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "cost of Mixture-of-Depths transformers, predicted and measured")   # one line, below 80 letters
set(CPACK_DEBIAN_PROGRAM_DESCRIPTION "A command-line toolkit: exact counts from one list of ops, predictions on a
machine, execution with real kernels, and reports of predicted against
measured.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libfathom-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libfmt-dev, libboost-program-options-dev")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "fathom")
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "The calculator as a C++ library: headers, static libraries and a CMake
package (find_package(fathom)): networks, the list of ops of a step, exact
counts and predictions.")
include(CPack)
