# SPDX-License-Identifier: Apache-2.0
# onnxfuse_stage(NAME FOLDER...): build/include/NAME, a tree of links to src/NAME and the folders that it may include from.
function(onnxfuse_stage name)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/include/${name})
  foreach(folder ${name} ${ARGN})
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/src/${folder} ${CMAKE_BINARY_DIR}/include/${name}/${folder} SYMBOLIC)
  endforeach()
endfunction()

# onnxfuse_folder(NAME BELOW folder... LINKS library...): the target onnxfuse_NAME from src/NAME/**.c. Its sources see their own folder
# and those named BELOW under <staged>/, a tree of links, so that an include of anything else fails to compile.
function(onnxfuse_folder name)
  cmake_parse_arguments(F "" "" "BELOW;LINKS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.c)
  list(FILTER sources EXCLUDE REGEX "/(codegen/llvm|plugin)/")
  onnxfuse_stage(${name} ${F_BELOW})
  if(NOT sources)
    file(WRITE ${CMAKE_BINARY_DIR}/empty_${name}.c "typedef int onnxfuse_${name}_is_empty;\n")
    set(sources ${CMAKE_BINARY_DIR}/empty_${name}.c)
  endif()
  add_library(onnxfuse_${name} OBJECT ${sources})
  target_include_directories(onnxfuse_${name} PUBLIC ${CMAKE_BINARY_DIR}/include/${name})
  target_link_libraries(onnxfuse_${name} PUBLIC ${F_LINKS})
endfunction()

# onnxfuse_plugin(NAME FOLDER [PARTS folder...] LINKS library...): the plug-in libonnxfuse-NAME.so from src/FOLDER, beside the library; its
# sources see what their room's do. Of the rooms PARTS it has copies of its own. The target, onnxfuse_NAME, joins ONNXFUSE_PLUGINS.
function(onnxfuse_plugin name folder)
  cmake_parse_arguments(P "" "" "PARTS;LINKS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${folder}/*.c ${PROJECT_SOURCE_DIR}/src/${folder}/*.cc)
  string(REGEX REPLACE "/.*" "" room ${folder})
  list(TRANSFORM P_PARTS REPLACE "(.+)" "$<TARGET_OBJECTS:onnxfuse_\\1>")
  add_library(onnxfuse_${name} MODULE ${sources} ${P_PARTS})
  target_include_directories(onnxfuse_${name} PRIVATE ${CMAKE_BINARY_DIR}/include/${room})
  target_link_libraries(onnxfuse_${name} PRIVATE ${P_LINKS})
  set_target_properties(onnxfuse_${name} PROPERTIES OUTPUT_NAME onnxfuse-${name})
  set(ONNXFUSE_PLUGINS ${ONNXFUSE_PLUGINS} onnxfuse_${name} PARENT_SCOPE)
endfunction()

# onnxfuse_vector_loops(source...): units that are compiled for an instruction set (src/base/vectors/vector_math.h), and what measures a machine. A
# product and a sum are one operation there, as in what they have in assembly; at -O1 GCC makes them one by -fexpensive-optimizations alone.
# GCC for aarch64 moves loads up before it gives registers out, so that a tile that fills them all keeps some of its sums in memory.
function(onnxfuse_vector_loops)
  set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS -ffp-contract=fast $<$<C_COMPILER_ID:GNU>:-fexpensive-optimizations>)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
    set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS -fno-schedule-insns)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64") # GCC reads it in the unit
    foreach(feature dotprod i8mm bf16)
      set(units ${ARGN})
      list(FILTER units INCLUDE REGEX "_${feature}\\.c$")
      set_property(SOURCE ${units} APPEND PROPERTY COMPILE_OPTIONS -march=armv8.2-a+${feature})
    endforeach()
  endif()
endfunction()
