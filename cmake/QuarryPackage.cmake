# SPDX-License-Identifier: MIT
# QuarryPackage.cmake: what `make package` makes, by CPack: a .deb and a .tar.zst, both of the install rules.
set(CPACK_PACKAGE_NAME quarry)
set(CPACK_PACKAGE_VENDOR "The Quarry authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "memory allocation toolkit: drop-in malloc, pools, and a tool that measures")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGE_FILE_NAME quarry-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_GENERATOR DEB TZST)
set(CPACK_VERBATIM_VARIABLES ON)
# The people who answer for the package are those who make it, as Debian's own tools have it.
set(contact "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
if("$ENV{DEBFULLNAME}" STREQUAL "" OR "$ENV{DEBEMAIL}" STREQUAL "")
  set(contact "The Quarry authors <maintainers@quarry.invalid>")
endif()
set(CPACK_PACKAGE_CONTACT ${contact})
set(CPACK_PACKAGE_DESCRIPTION
"Quarry is a drop-in malloc that gives memory back while a program idles and
stops at corruption instead of spreading it, a library of heaps and pools for
blocks whose lifetime is known, and a tool, quarry, that compares allocators
on a program, records and replays its allocations, and shows what memory a
process has and why.
.
The package has the shared and the static libraries, the headers, files for
pkg-config and CMake, and the programs of the tool's benchmarks and tour.")

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
# The package has shared libraries: the linker's cache is made anew.
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/package/triggers)
# The scripts of the pools' checker and of gdb. Only the first is run by itself.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS python3)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS gdb)
# What a Debian package has, and an archive has not.
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/cmake/package/generator.cmake)
set(CPACK_QUARRY_SOURCE_DIR ${PROJECT_SOURCE_DIR})
include(CPack)
