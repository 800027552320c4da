# SPDX-License-Identifier: MIT
# Read by CPack once for each kind of package.
if(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_STRIP_FILES ON)
  set(CPACK_DEBIAN_DEBUGINFO_PACKAGE ON)
  set(CPACK_PRE_BUILD_SCRIPTS ${CPACK_QUARRY_SOURCE_DIR}/cmake/package/debian.cmake)
endif()
