# Compiles the network presets into the library: models/networks/*.ini become one generated source that defines
# fathom::builtin_network_files(). Run as a script (-P) it writes that source; included, it adds the build rule.
if(CMAKE_SCRIPT_MODE_FILE)
  set(text "// Generated from models/networks; edit the INI files there.\n#include \"models/registry.hpp\"\n\nnamespace fathom {\n")
  set(table "")
  string(REPLACE "," ";" FILES "${FILES}")
  set(index 0)
  foreach(file IN LISTS FILES)
    get_filename_component(name ${file} NAME_WLE)
    file(READ ${file} content)
    string(FIND "${content}" ")fathom_ini\"" clash)
    if(NOT clash EQUAL -1)
      message(FATAL_ERROR "${file} holds the delimiter of the generated string")
    endif()
    string(APPEND text "static constexpr char kFile${index}[] = R\"fathom_ini(${content})fathom_ini\";\n")
    string(APPEND table "      {\"${name}\", kFile${index}},\n")
    math(EXPR index "${index} + 1")
  endforeach()
  string(APPEND text "\nstd::span<const BuiltinFile> builtin_network_files() {\n  static constexpr BuiltinFile files[] = {\n${table}  };\n  return files;\n}\n\n}  // namespace fathom\n")
  file(WRITE ${OUTPUT} "${text}")
  return()
endif()

file(GLOB network_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/models/networks/*.ini)
list(SORT network_files)
list(JOIN network_files "," network_list)
set(embedded ${CMAKE_BINARY_DIR}/generated/builtin_networks.cpp)
add_custom_command(OUTPUT ${embedded}
  COMMAND ${CMAKE_COMMAND} -DOUTPUT=${embedded} "-DFILES=${network_list}" -P ${CMAKE_SOURCE_DIR}/tools/cmake/FathomEmbed.cmake
  DEPENDS ${network_files} ${CMAKE_SOURCE_DIR}/tools/cmake/FathomEmbed.cmake
  COMMENT "embedding the network presets" VERBATIM)
target_sources(fathom_models PRIVATE ${embedded})
