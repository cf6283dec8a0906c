# Compiles the presets into the library: models/networks/*.ini and models/machines/*.ini each become one generated source that
# defines fathom::builtin_network_files() or fathom::builtin_machine_files(). Run as a script (-P) it writes such a source;
# included, it adds the build rules. The fitted GPU models (models/machines/*.gpu, 1 MB each) are taken in by the assembler:
# no compiler sees their text, and pages of the image are read only when a machine is asked for.
if(CMAKE_SCRIPT_MODE_FILE AND KIND STREQUAL "machine_fit")
  set(text "// Generated from models/machines/*.gpu.\n#include \"models/registry.hpp\"\n\n")
  set(table "")
  string(REPLACE "," ";" FILES "${FILES}")
  foreach(file IN LISTS FILES)
    get_filename_component(name ${file} NAME_WLE)
    set(symbol fathom_fit_${name})
    string(APPEND text "__asm__(\".pushsection .rodata\\n.balign 16\\n.global ${symbol}\\n.hidden ${symbol}\\n${symbol}:\\n.incbin \\\"${file}\\\"\\n\"\n"
      "        \".global ${symbol}_end\\n.hidden ${symbol}_end\\n${symbol}_end:\\n.byte 0\\n.popsection\\n\");\n"
      "extern \"C\" __attribute__((visibility(\"hidden\"))) const char ${symbol}[];\nextern \"C\" __attribute__((visibility(\"hidden\"))) const char ${symbol}_end[];\n")
    string(APPEND table "      {\"${name}\", {${symbol}, static_cast<std::size_t>(${symbol}_end - ${symbol})}},\n")
  endforeach()
  string(APPEND text "\nnamespace fathom {\n\nstd::span<const BuiltinFile> builtin_machine_fits() {\n  static const BuiltinFile files[] = {\n${table}  };\n  return files;\n}\n\n}  // namespace fathom\n")
  file(WRITE ${OUTPUT} "${text}")
  return()
endif()
if(CMAKE_SCRIPT_MODE_FILE)
  set(text "// Generated from models/${KIND}s; edit the INI files there.\n#include \"models/registry.hpp\"\n\nnamespace fathom {\n")
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
  string(APPEND text "\nstd::span<const BuiltinFile> builtin_${KIND}_files() {\n  static constexpr BuiltinFile files[] = {\n${table}  };\n  return files;\n}\n\n}  // namespace fathom\n")
  file(WRITE ${OUTPUT} "${text}")
  return()
endif()

foreach(kind network machine)
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/models/${kind}s/*.ini)
  list(SORT files)
  list(JOIN files "," list)
  set(embedded ${CMAKE_BINARY_DIR}/generated/builtin_${kind}s.cpp)
  add_custom_command(OUTPUT ${embedded}
    COMMAND ${CMAKE_COMMAND} -DKIND=${kind} -DOUTPUT=${embedded} "-DFILES=${list}" -P ${CMAKE_SOURCE_DIR}/tools/cmake/FathomEmbed.cmake
    DEPENDS ${files} ${CMAKE_SOURCE_DIR}/tools/cmake/FathomEmbed.cmake
    COMMENT "embedding the ${kind} presets" VERBATIM)
  set_source_files_properties(${embedded} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_sources(fathom_models PRIVATE ${embedded})
endforeach()

file(GLOB fits CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/models/machines/*.gpu)
list(SORT fits)
list(JOIN fits "," list)
set(embedded ${CMAKE_BINARY_DIR}/generated/builtin_machine_fits.cpp)
add_custom_command(OUTPUT ${embedded}
  COMMAND ${CMAKE_COMMAND} -DKIND=machine_fit -DOUTPUT=${embedded} "-DFILES=${list}" -P ${CMAKE_SOURCE_DIR}/tools/cmake/FathomEmbed.cmake
  DEPENDS ${fits} ${CMAKE_SOURCE_DIR}/tools/cmake/FathomEmbed.cmake
  COMMENT "embedding the fitted GPU models" VERBATIM)
set_source_files_properties(${embedded} PROPERTIES OBJECT_DEPENDS "${fits}" SKIP_UNITY_BUILD_INCLUSION ON)
target_sources(fathom_models PRIVATE ${embedded})
