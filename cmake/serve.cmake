# SPDX-License-Identifier: Apache-2.0
# onnxfuse-serve, the serving example (docs/serving.md): on the public header, libmicrohttpd and cJSON. Built where libmicrohttpd is.
option(ONNXFUSE_SERVE "Build onnxfuse-serve, if libmicrohttpd is there" ON)
if(NOT ONNXFUSE_SERVE)
  return()
endif()
pkg_check_modules(MICROHTTPD IMPORTED_TARGET libmicrohttpd>=0.9.73)
if(NOT MICROHTTPD_FOUND)
  message(STATUS "onnxfuse-serve is not built: libmicrohttpd was not found (libmicrohttpd-dev)")
  return()
endif()
file(GLOB serve_sources CONFIGURE_DEPENDS examples/serve/*.c)
add_executable(onnxfuse_serve ${serve_sources})
target_link_libraries(onnxfuse_serve PRIVATE onnxfuse PkgConfig::MICROHTTPD cjson Threads::Threads m)
set_target_properties(onnxfuse_serve PROPERTIES OUTPUT_NAME onnxfuse-serve BUILD_RPATH_USE_ORIGIN ON
  INSTALL_RPATH "$ORIGIN/${library_from_program}")
install(TARGETS onnxfuse_serve RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
