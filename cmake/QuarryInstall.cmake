# SPDX-License-Identifier: MIT
# QuarryInstall.cmake: headers, libraries, pkg-config files and the CMake package. All of it is
# relocatable: `cmake --install build --prefix anywhere` works, and so does moving the result.
include(CMakePackageConfigHelpers)

get_property(exported GLOBAL PROPERTY quarry_exported)
install(TARGETS quarry_headers ${exported} EXPORT quarryTargets)
install(DIRECTORY include/quarry DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
# The command line tool is built by cargo; `make` puts it here.
install(PROGRAMS ${PROJECT_BINARY_DIR}/bin/quarry DESTINATION ${CMAKE_INSTALL_BINDIR} OPTIONAL)
# For programs that use the pools: the checker of scopes, and commands for gdb.
install(FILES scripts/check_scopes.py scripts/scopes_text.py scripts/scopes_pointers.py tools/gdb/quarry-gdb.py DESTINATION ${CMAKE_INSTALL_DATADIR}/quarry)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/quarry)
install(EXPORT quarryTargets NAMESPACE quarry:: DESTINATION ${package_dir})
configure_package_config_file(cmake/quarryConfig.cmake.in quarryConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(quarryConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/quarryConfig.cmake ${PROJECT_BINARY_DIR}/quarryConfigVersion.cmake
  DESTINATION ${package_dir})

# prefix is found from where the .pc file lies, so no path of this machine is written into it.
set(pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}/${pc_dir} OUTPUT_VARIABLE pc_up)
foreach(name quarry quarry-malloc)
  set(pc_name ${name})
  configure_file(cmake/quarry.pc.in ${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${pc_dir})
endforeach()
