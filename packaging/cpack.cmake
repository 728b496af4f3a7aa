# SPDX-License-Identifier: Apache-2.0
# Read by cpack once for each kind of package: the archive has no prefix of its own.
if(CPACK_GENERATOR STREQUAL "TGZ")
  set(CPACK_PACKAGING_INSTALL_PREFIX "/")
  set(CPACK_ARCHIVE_COMPONENT_INSTALL OFF)
endif()
