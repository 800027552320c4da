# SPDX-License-Identifier: MIT
# QuarryLibrary.cmake: how the C sources are compiled and linked; the same for every library.

# What the heap's own code needs.
include(CheckCCompilerFlag)
include(CheckLinkerFlag)
set(quarry_code_options
  -ffunction-sections           # what no library needs is left out of it, and what is rare lies apart
  -fPIC -fvisibility=hidden -fno-semantic-interposition -fno-plt
  -ftls-model=initial-exec      # thread-local state is an offset from the thread pointer, not a call
  -fno-stack-protector          # no memory but our own is written on these paths
  -fno-strict-aliasing          # blocks change their type by being freed
  # The compiler may neither assume what our malloc does nor turn our own code into calls to it.
  -fno-builtin-malloc -fno-builtin-calloc -fno-builtin-realloc -fno-builtin-free)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND quarry_code_options -fcf-protection=none)  # no landing pads in the fast paths
endif()
# Beside glibc every dynamic linker refuses that in what is opened late. A descriptor is the quickest other way, and the usual one on aarch64.
if(NOT QUARRY_GLIBC)
  list(APPEND quarry_code_options -ftls-model=global-dynamic)
  check_c_compiler_flag("-mtls-dialect=gnu2 -Werror" QUARRY_TLS_DESCRIPTORS)
  if(QUARRY_TLS_DESCRIPTORS)
    list(APPEND quarry_code_options -mtls-dialect=gnu2)
  endif()
endif()
if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug" AND NOT QUARRY_SANITIZE)
  list(APPEND quarry_code_options -O2)  # also where the build type says -O3, which is not faster here
endif()
set(quarry_warnings -Wall -Wextra -Wundef -Wshadow -Wstrict-prototypes -Wmissing-prototypes)

# Never unloaded (threads keep pointing into it), nothing left to bind at run time, no mapping for each kind of section.
set(quarry_link_options
  -Wl,-z,nodelete -Wl,-z,relro,-z,now -Wl,--hash-style=gnu -Wl,-z,noseparate-code
  -Wl,--as-needed -Wl,--no-undefined -Wl,--gc-sections)
# Apart from the rest, so that a process has 64 KiB of the code instead of all: rare.ld says why. Pages of this size make the loader begin there.
set(quarry_rare ${CMAKE_CURRENT_LIST_DIR}/rare.ld)
check_linker_flag(C "-Wl,-T,${quarry_rare}" QUARRY_RARE_CODE_APART)
if(QUARRY_RARE_CODE_APART)
  # What the compiler begins a library with asks the loader for four functions in each process, for C++ and profilers.
  list(APPEND quarry_link_options -Wl,-T,${quarry_rare} -Wl,-z,max-page-size=65536 -nostartfiles)
endif()

if(QUARRY_WERROR)
  add_compile_options(-Werror)
endif()
if(QUARRY_SANITIZE)
  # One finding ends the test. No suppression lists: a benign race becomes a relaxed atomic.
  add_compile_options(-fsanitize=${QUARRY_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${QUARRY_SANITIZE})
  if(QUARRY_SANITIZE MATCHES "thread" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-tsan)  # "fences are not modelled": known
  endif()
endif()

# The public headers, alone: for programs that get the code by LD_PRELOAD.
file(GLOB quarry_public_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/quarry/*.h)
add_library(quarry_headers INTERFACE)
target_include_directories(quarry_headers INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set_target_properties(quarry_headers PROPERTIES EXPORT_NAME headers)
add_library(quarry::headers ALIAS quarry_headers)

# qy_objects(NAME SOURCES ... CHECK 0-2 FAKE 0|1): one compilation of the sources.
function(qy_objects name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "CHECK;FAKE" "SOURCES")
  add_library(${name} OBJECT ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES C_STANDARD 17 C_STANDARD_REQUIRED ON C_EXTENSIONS ON)
  target_compile_options(${name} PRIVATE ${quarry_code_options} ${quarry_warnings})
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE QY_VERSION="${PROJECT_VERSION}"
    QY_CFG_CHECK=${arg_CHECK} QY_CFG_FAKE=${arg_FAKE})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${name} PRIVATE quarry_headers)
endfunction()

# qy_library(NAME STATIC|SHARED objects... [PICK pattern] OUTPUT file-name [EXPORT name]): a library made of them.
# PICK: of them only those whose source's path, after src/, begins with this regular expression.
# EXPORT: users know it as quarry::name, here and after installation.
function(qy_library name kind)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "PICK;OUTPUT;EXPORT" "")
  list(TRANSFORM arg_UNPARSED_ARGUMENTS REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)
  if(arg_PICK)
    set(objects "$<FILTER:${objects},INCLUDE,[.]dir/([.]/)?src/(${arg_PICK})>")
  endif()
  add_library(${name} ${kind} "${objects}")
  set_target_properties(${name} PROPERTIES OUTPUT_NAME ${arg_OUTPUT} LINKER_LANGUAGE C)
  target_link_libraries(${name} PUBLIC quarry_headers)
  if(kind STREQUAL "SHARED")
    target_link_options(${name} PRIVATE ${quarry_link_options})
    set_target_properties(${name} PROPERTIES LINK_DEPENDS ${quarry_rare})
  endif()
  if(arg_EXPORT)
    if(kind STREQUAL "SHARED")
      set_target_properties(${name} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
    endif()
    set_target_properties(${name} PROPERTIES EXPORT_NAME ${arg_EXPORT})
    add_library(quarry::${arg_EXPORT} ALIAS ${name})
    set_property(GLOBAL APPEND PROPERTY quarry_exported ${name})
  endif()
endfunction()

# qy_wrap(library tables...): the library's own calls of the functions that it interposes by these tables go to their
# namesakes __wrap_NAME, which check nothing (api/check_libc.h).
function(qy_wrap library)
  file(GLOB tables CONFIGURE_DEPENDS ${ARGN})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${tables})
  set(names)
  foreach(table IN LISTS tables)
    file(READ ${table} text)
    string(REGEX MATCHALL "\n(FUNCTION|INTEGER|REAL_NUMBER)\\([^(),]+, [a-zA-Z0-9_]+|\nPROCEDURE\\([a-zA-Z0-9_]+" lines "${text}")
    list(TRANSFORM lines REPLACE "^.*[(, ]([a-zA-Z0-9_]+)$" "-Wl,--wrap=\\1")
    list(APPEND names ${lines})
  endforeach()
  list(REMOVE_DUPLICATES names)
  target_link_options(${library} PRIVATE ${names})
endfunction()
