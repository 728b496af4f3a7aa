# SPDX-License-Identifier: Apache-2.0
# Cross-compiling for arm64 with Debian's gcc-aarch64-linux-gnu: cmake --toolchain cmake/aarch64-linux-gnu.cmake -DCMAKE_SYSROOT=FOLDER, where FOLDER
# is what scripts/sysroot.sh makes. With qemu-user-static, ctest runs what was built (docs/testing.md).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
find_program(arm64_cxx aarch64-linux-gnu-g++) # optional, as it is natively
if(arm64_cxx)
  set(CMAKE_CXX_COMPILER ${arm64_cxx})
endif()
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER) # protoc-c runs here
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)

find_program(qemu_aarch64 NAMES qemu-aarch64-static qemu-aarch64)
if(qemu_aarch64)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${qemu_aarch64} -L ${CMAKE_SYSROOT})
endif()
