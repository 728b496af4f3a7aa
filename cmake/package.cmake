# SPDX-License-Identifier: Apache-2.0
# The static library, what is installed where, and the packages made of it (docs/c-api.md tells users of them).
#   cmake --install build --prefix DIR     any DIR: all paths are relative to the files that name them
#   cmake --build build --target package   a .deb each for library, plug-ins, development, program and provider; a .tar.gz
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(ONNXFUSE_PLUGIN_DIR ${CMAKE_INSTALL_FULL_LIBDIR}/onnxfuse)
set(ONNXFUSE_PACKAGED_PLUGIN_DIR /usr/${CMAKE_INSTALL_LIBDIR}/onnxfuse)
configure_file(${PROJECT_SOURCE_DIR}/cmake/plugin_places.h.in ${CMAKE_BINARY_DIR}/include/base/generated/base/plugin_places.h @ONLY)
target_include_directories(onnxfuse_base PRIVATE ${CMAKE_BINARY_DIR}/include/base/generated)

# Threads that sessions share live as long as the process: a program that closes the library (dlclose) must not take their code away.
set(stays_loaded -Wl,-z,nodelete)
target_link_options(onnxfuse PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/packaging/exports.map ${stays_loaded})
set_target_properties(onnxfuse PROPERTIES LINK_DEPENDS ${PROJECT_SOURCE_DIR}/packaging/exports.map)

# --- the static library -----------------------------------------------------------------------------------------------
# All objects in one, with the hidden symbols made local: the library's own names cannot meet the program's.
set(static_object ${CMAKE_BINARY_DIR}/onnxfuse_static.o)
set(parts base graph policy lowering ops importer autodiff passes optimize codegen fusions runtime)
list(TRANSFORM parts PREPEND onnxfuse_)
list(APPEND parts onnx_proto)
list(TRANSFORM parts REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE part_objects)
add_custom_command(OUTPUT ${static_object}
  COMMAND ${CMAKE_LINKER} -r -o ${static_object} ${part_objects}
  COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${static_object}
  DEPENDS ${part_objects} COMMAND_EXPAND_LISTS VERBATIM)
add_library(onnxfuse_static STATIC ${static_object})
set_source_files_properties(${static_object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
set_target_properties(onnxfuse_static PROPERTIES LINKER_LANGUAGE C OUTPUT_NAME onnxfuse EXPORT_NAME static)
target_include_directories(onnxfuse_static INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
set(static_libraries ${stays_loaded} -lprotobuf-c -lcjson -lpthread -ldl -lm)
target_link_libraries(onnxfuse_static INTERFACE ${static_libraries})
add_dependencies(onnxfuse_static ${ONNXFUSE_PLUGINS})

# --- where what goes --------------------------------------------------------------------------------------------------
set_target_properties(onnxfuse PROPERTIES EXPORT_NAME onnxfuse)
install(TARGETS onnxfuse EXPORT onnxfuse
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# The plug-ins, each a component and a package of its name.
set(component_of_onnxfuse_llvm compiler)
set(component_of_onnxfuse_image pictures)
set(component_of_onnxfuse_regex expressions)
foreach(plugin ${ONNXFUSE_PLUGINS})
  install(TARGETS ${plugin} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/onnxfuse COMPONENT ${component_of_${plugin}})
  list(APPEND plugin_components ${component_of_${plugin}})
endforeach()
install(TARGETS onnxfuse_static EXPORT onnxfuse
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
file(RELATIVE_PATH library_from_program ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
set_target_properties(onnxfuse_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${library_from_program}")
install(TARGETS onnxfuse_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
# The manual page comes out of the program, so what runs here must be what is built.
if(NOT CMAKE_CROSSCOMPILING)
  set(manual_page ${CMAKE_BINARY_DIR}/onnxfuse.1)
  add_custom_command(OUTPUT ${manual_page} COMMAND onnxfuse_cli help --man > ${manual_page} DEPENDS onnxfuse_cli VERBATIM)
  add_custom_target(onnxfuse_manual ALL DEPENDS ${manual_page})
  install(FILES ${manual_page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program)
endif()
install(FILES include/onnxfuse.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)

set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH prefix_from_pkgconfig ${CMAKE_INSTALL_PREFIX}/${pkgconfig_dir} ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" prefix_from_pkgconfig "${prefix_from_pkgconfig}")
string(REPLACE ";" " " static_libraries "${static_libraries}")
configure_file(onnxfuse.pc.in ${CMAKE_BINARY_DIR}/onnxfuse.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/onnxfuse.pc DESTINATION ${pkgconfig_dir} COMPONENT development)

set(cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/onnxfuse)
configure_package_config_file(cmake/onnxfuse-config.cmake.in ${CMAKE_BINARY_DIR}/onnxfuse-config.cmake INSTALL_DESTINATION ${cmake_dir})
# As long as the version begins with 0, a minor version may change what exists (docs/c-api.md).
write_basic_package_version_file(${CMAKE_BINARY_DIR}/onnxfuse-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/onnxfuse-config.cmake ${CMAKE_BINARY_DIR}/onnxfuse-config-version.cmake
  DESTINATION ${cmake_dir} COMPONENT development)
install(EXPORT onnxfuse FILE onnxfuse-targets.cmake NAMESPACE onnxfuse:: DESTINATION ${cmake_dir} COMPONENT development)

install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT development FILES_MATCHING PATTERN "*.md" PATTERN "*.json")
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT development)

set(package_of_compiler libonnxfuse-llvm)
set(package_of_pictures libonnxfuse-image)
set(package_of_expressions libonnxfuse-regex)
foreach(component ${plugin_components})
  list(APPEND plugin_parts ${component}:${package_of_${component}})
endforeach()
foreach(part library:libonnxfuse0 ${plugin_parts} development:libonnxfuse-dev program:onnxfuse provider:libonnxfuse-ep)
  string(REPLACE ":" ";" part ${part})
  list(GET part 0 component)
  list(GET part 1 package)
  install(FILES packaging/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${component})
endforeach()

# --- packages ---------------------------------------------------------------------------------------------------------
set(CPACK_GENERATOR TGZ)
# What CPack makes a .deb with, from the Debian packages dpkg-dev and file.
find_program(DPKG_SHLIBDEPS dpkg-shlibdeps)
find_program(FILE_PROGRAM file)
if(DPKG_SHLIBDEPS AND FILE_PROGRAM)
  list(APPEND CPACK_GENERATOR DEB)
endif()
set(CPACK_PACKAGE_NAME onnxfuse)
set(CPACK_PACKAGE_VENDOR onnxfuse)
set(CPACK_PACKAGE_CONTACT "The onnxfuse developers <developers@onnxfuse.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "runs ONNX models as fast as the machine allows")
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr) # of the .deb; the archive's paths have no prefix
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/packaging/cpack.cmake)
set(CPACK_COMPONENTS_ALL library ${plugin_components} development program provider)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR})
set(this_version "(= ${PROJECT_VERSION})")

set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libonnxfuse0)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_GENERATE_SHLIBS ON)
string(REGEX REPLACE "[a-z]+:" "" plugin_packages "${plugin_parts}")
string(REPLACE ";" ", " CPACK_DEBIAN_LIBRARY_PACKAGE_RECOMMENDS "${plugin_packages}")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SUGGESTS "ocl-icd-libopencl1, libclblast1")
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "runs ONNX models: the shared library
 Without libonnxfuse-llvm it runs models whose kernels are in its cache on disk already, and says of others what is missing.
 Pictures of other formats than BMP and PNM need libonnxfuse-image, regular expressions libonnxfuse-regex.")
set(CPACK_DEBIAN_COMPILER_PACKAGE_NAME libonnxfuse-llvm)
set(CPACK_DEBIAN_COMPILER_PACKAGE_SECTION libs)
set(CPACK_COMPONENT_COMPILER_DESCRIPTION "runs ONNX models: the compiler of kernels
 A plug-in of libonnxfuse0 on LLVM, opened when a kernel is in no cache.")
set(CPACK_DEBIAN_PICTURES_PACKAGE_NAME libonnxfuse-image)
set(CPACK_DEBIAN_PICTURES_PACKAGE_SECTION libs)
set(CPACK_COMPONENT_PICTURES_DESCRIPTION "runs ONNX models: decoders of pictures
 A plug-in of libonnxfuse0 for JPEG, PNG, TIFF, WebP and JPEG 2000, opened when a model first decodes one.")
set(CPACK_DEBIAN_EXPRESSIONS_PACKAGE_NAME libonnxfuse-regex)
set(CPACK_DEBIAN_EXPRESSIONS_PACKAGE_SECTION libs)
set(CPACK_COMPONENT_EXPRESSIONS_DESCRIPTION "runs ONNX models: regular expressions
 A plug-in of libonnxfuse0 on RE2, opened when a model has the operator RegexFullMatch.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libonnxfuse-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libonnxfuse0 ${this_version}, libcjson-dev, libprotobuf-c-dev, libc6-dev")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_RECOMMENDS "pkg-config | cmake")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "runs ONNX models: header, static library, pkg-config and CMake files, documentation
 What a program in C or C++ needs to be built with onnxfuse.")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME onnxfuse)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS "libonnxfuse0 ${this_version}")
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "runs ONNX models: the command line
 Runs, times, tests and shows models.")
set(CPACK_DEBIAN_PROVIDER_PACKAGE_NAME libonnxfuse-ep)
set(CPACK_DEBIAN_PROVIDER_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PROVIDER_PACKAGE_DEPENDS "libonnxfuse0 ${this_version}")
set(CPACK_COMPONENT_PROVIDER_DESCRIPTION "runs ONNX models: execution provider of ONNX Runtime
 A plug-in of ONNX Runtime that hands it what libonnxfuse0 can run.")
include(CPack)
