# SPDX-License-Identifier: Apache-2.0
# What docs/dependencies.md explains: protobuf-c, cJSON, zlib, xxHash, OpenCL's headers, LLVM (any of 15 to 20; 19 preferred), and what the
# plug-ins for pictures stand on; Criterion for the tests.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)

pkg_check_modules(CJSON REQUIRED IMPORTED_TARGET libcjson)
add_library(cjson INTERFACE)
target_link_libraries(cjson INTERFACE PkgConfig::CJSON)

# zlib: the command line reads .npz.
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
add_library(zlib INTERFACE)
target_link_libraries(zlib INTERFACE PkgConfig::ZLIB)

# protobuf-c: the compiler makes onnx.pb-c.{h,c} from src/importer/onnx.proto.
find_program(PROTOC_C NAMES protoc-c REQUIRED)
pkg_check_modules(PROTOBUF_C REQUIRED IMPORTED_TARGET libprotobuf-c)
add_library(protobuf_c INTERFACE)
target_link_libraries(protobuf_c INTERFACE PkgConfig::PROTOBUF_C)
set(proto_dir ${CMAKE_BINARY_DIR}/proto)
set(proto_source ${PROJECT_SOURCE_DIR}/src/importer/onnx.proto)
file(MAKE_DIRECTORY ${proto_dir})
add_custom_command(OUTPUT ${proto_dir}/onnx.pb-c.c ${proto_dir}/onnx.pb-c.h
  COMMAND ${PROTOC_C} --c_out=${proto_dir} --proto_path=${PROJECT_SOURCE_DIR}/src/importer ${proto_source}
  DEPENDS ${proto_source} VERBATIM)
add_library(onnx_proto OBJECT ${proto_dir}/onnx.pb-c.c ${proto_dir}/onnx.pb-c.h)
target_include_directories(onnx_proto SYSTEM PUBLIC ${proto_dir})
target_link_libraries(onnx_proto PUBLIC protobuf_c)
target_compile_options(onnx_proto PRIVATE -w)

# OpenCL: headers alone; the library is opened at run time.
find_path(OPENCL_INCLUDE_DIR CL/cl.h)
if(NOT OPENCL_INCLUDE_DIR)
  message(FATAL_ERROR "CL/cl.h was not found: install opencl-c-headers")
endif()
add_library(opencl_headers INTERFACE)
target_include_directories(opencl_headers SYSTEM INTERFACE ${OPENCL_INCLUDE_DIR})

# xxHash: the header alone, compiled into src/runtime/compiled.
find_path(XXHASH_INCLUDE_DIR xxhash.h)
if(NOT XXHASH_INCLUDE_DIR)
  message(FATAL_ERROR "xxhash.h was not found: install libxxhash-dev")
endif()

# LLVM: libLLVM-N.so and its C headers.
foreach(version 19 20 18 17 16 15)
  find_path(LLVM_INCLUDE_DIR llvm-c/Core.h PATHS /usr/lib/llvm-${version}/include /usr/include/llvm-c-${version} NO_DEFAULT_PATH)
  find_library(LLVM_LIBRARY NAMES LLVM-${version} LLVM.so.${version}.1 LLVM PATHS /usr/lib/llvm-${version}/lib NO_DEFAULT_PATH)
  if(LLVM_INCLUDE_DIR AND LLVM_LIBRARY)
    set(LLVM_MAJOR ${version})
    break()
  endif()
  unset(LLVM_INCLUDE_DIR CACHE)
  unset(LLVM_LIBRARY CACHE)
endforeach()
if(NOT LLVM_MAJOR)
  message(FATAL_ERROR "LLVM 15 to 20 with its C headers was not found: install llvm-19-dev")
endif()
message(STATUS "LLVM ${LLVM_MAJOR}: ${LLVM_LIBRARY}")
add_library(llvm INTERFACE)
target_include_directories(llvm SYSTEM INTERFACE ${LLVM_INCLUDE_DIR})
target_compile_definitions(llvm INTERFACE ONNXFUSE_LLVM_VERSION=${LLVM_MAJOR})
target_link_libraries(llvm INTERFACE ${LLVM_LIBRARY})

# A plug-in whose libraries are missing is left out, and nothing else.
# libonnxfuse-image.so: the libraries of picture formats.
pkg_check_modules(PICTURES IMPORTED_TARGET libjpeg libpng>=1.6 libtiff-4>=4.5 libwebp>=1.0 libwebpdemux libopenjp2>=2.3)
if(NOT PICTURES_FOUND)
  message(STATUS "libonnxfuse-image.so is not built: it needs libjpeg62-turbo-dev libpng-dev libtiff-dev (4.5 or newer) libwebp-dev libopenjp2-7-dev")
endif()
# libonnxfuse-regex.so: RE2, and a compiler of C++.
include(CheckLanguage)
check_language(CXX)
pkg_check_modules(RE2 IMPORTED_TARGET re2)
if(CMAKE_CXX_COMPILER AND RE2_FOUND)
  enable_language(CXX)
  set(CMAKE_CXX_STANDARD 17)
  set(CMAKE_CXX_STANDARD_REQUIRED ON)
  set(CMAKE_CXX_VISIBILITY_PRESET hidden)
  set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
else()
  set(RE2_FOUND FALSE)
  message(STATUS "libonnxfuse-regex.so is not built: it needs g++ and libre2-dev")
endif()
