# SPDX-License-Identifier: MIT
# QuarryInstall.cmake: everything that is installed, but the programs of bench/ and examples/tour/, whose folders say so. All of it is
# relocatable: `cmake --install build --prefix anywhere` works, and so does moving the result. `make package` packs the same.
include(CMakePackageConfigHelpers)
find_package(Python3 REQUIRED COMPONENTS Interpreter)

get_property(exported GLOBAL PROPERTY quarry_exported)
install(TARGETS quarry_headers ${exported} EXPORT quarryTargets)
install(DIRECTORY include/quarry DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
# For comparisons alone: cmake --install build --component comparisons.
install(TARGETS quarry_pow2 LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT comparisons NAMELINK_COMPONENT comparisons EXCLUDE_FROM_ALL)
# For programs that use the pools: the checker of scopes, and commands for gdb.
install(FILES scripts/check_scopes.py scripts/scopes_text.py scripts/scopes_pointers.py tools/gdb/quarry-gdb.py tools/gdb/quarry_heap.py
  DESTINATION ${CMAKE_INSTALL_DATADIR}/quarry)

# The command line tool is built by cargo. `make tool` puts it here and has it write its manual pages and completions.
set(share ${PROJECT_BINARY_DIR}/share)
install(PROGRAMS ${PROJECT_BINARY_DIR}/bin/quarry DESTINATION ${CMAKE_INSTALL_BINDIR} OPTIONAL)
install(DIRECTORY ${share}/bash-completion ${share}/zsh ${share}/fish DESTINATION ${CMAKE_INSTALL_DATADIR} OPTIONAL)
# The licences of the crates in it: `make licences`, which `make install` and `make package` do.
install(FILES ${share}/third-party.txt DESTINATION ${CMAKE_INSTALL_DOCDIR} OPTIONAL)

# The manual pages of the libraries, and beside them those of the tool.
set(manuals ${share}/man/man3/libquarry.3 ${share}/man/man7/quarry.7)
file(GLOB manual_sources CONFIGURE_DEPENDS docs/man/*.in)
add_custom_command(OUTPUT ${manuals}
  COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/scripts/man_pages.py ${share}/man ${PROJECT_VERSION}
  DEPENDS ${manual_sources} scripts/man_pages.py src/rt/opts.def ${quarry_public_headers}
  COMMENT "Manual pages of the libraries")
add_custom_target(manuals ALL DEPENDS ${manuals})
install(DIRECTORY ${share}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR})

# What `make` builds: all that is installed. tests/install/install.sh compares the two.
add_custom_target(product DEPENDS ${exported} quarry_pow2 quarry_replayer manuals)
foreach(target bench_scenarios bench_suite tour)
  if(TARGET ${target})
    add_dependencies(product ${target})
  endif()
endforeach()

install(FILES README.md CHANGELOG.md SECURITY.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN man EXCLUDE)
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING
  PATTERN "*.c" PATTERN "*.cpp" PATTERN "*.gdb" PATTERN "*.out" PATTERN "*.sql" PATTERN tour EXCLUDE)

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

# What was installed, so that scripts/uninstall.sh finds it, also where it was moved to. Last, when all rules have run. What the list has
# from before stays: a component that was installed apart, a file of an older version.
install(CODE "set(manifest ${CMAKE_INSTALL_DATADIR}/quarry/manifest.txt)" ALL_COMPONENTS)
install(CODE [[
  set(list $ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/${manifest})
  set(before "")
  if(EXISTS ${list})
    file(STRINGS ${list} before)
  endif()
  list(APPEND CMAKE_INSTALL_MANIFEST_FILES ${CMAKE_INSTALL_PREFIX}/${manifest})
  string(REPLACE "${CMAKE_INSTALL_PREFIX}/" "" files "${CMAKE_INSTALL_MANIFEST_FILES}")
  list(APPEND files ${before})
  list(REMOVE_DUPLICATES files)
  string(REPLACE ";" "\n" files "${files}")
  file(WRITE ${list} "${files}\n")
]] ALL_COMPONENTS)
