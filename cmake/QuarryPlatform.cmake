# SPDX-License-Identifier: MIT
# QuarryPlatform.cmake: what is compiled for, and what its C compiler may lack.
include(CheckCSourceCompiles)
include(CheckIncludeFile)

# x32 has 64-bit registers and 32-bit pointers; the heap's tables are laid out for neither that nor 32 bits.
check_c_source_compiles("#if !defined(__linux__) || !defined(__LP64__)\n#error\n#endif\nint main(void) { return 0; }" QUARRY_LINUX_64)
if(NOT QUARRY_LINUX_64)
  message(FATAL_ERROR "Quarry is for Linux with 64-bit pointers: this compiler (${CMAKE_C_COMPILER} ${CMAKE_C_FLAGS}) makes other programs")
endif()

# What differs from glibc is in the sources where it matters; here it is the way to thread-local state, see qy_objects.
check_c_source_compiles("#include <features.h>\n#ifndef __GLIBC__\n#error\n#endif\nint main(void) { return 0; }" QUARRY_GLIBC)

# The kernel's headers are the same for every C library, but a compiler for another one than the system's may not find them.
check_include_file(linux/futex.h QUARRY_HAVE_KERNEL_HEADERS)
if(NOT QUARRY_HAVE_KERNEL_HEADERS)
  file(GLOB asm /usr/include/${CMAKE_SYSTEM_PROCESSOR}-*/asm /usr/include/asm)
  if(CMAKE_CROSSCOMPILING OR NOT asm OR NOT EXISTS /usr/include/linux/futex.h)
    message(FATAL_ERROR "the kernel's headers are missing: install linux-libc-dev (Debian), linux-headers (Alpine) or kernel-headers (Fedora)")
  endif()
  # These alone: beside them lie those of the other C library.
  list(GET asm 0 asm)
  set(kernel_headers ${PROJECT_BINARY_DIR}/kernel-headers)
  file(MAKE_DIRECTORY ${kernel_headers})
  file(CREATE_LINK ${asm} ${kernel_headers}/asm SYMBOLIC)
  foreach(folder linux asm-generic)
    file(CREATE_LINK /usr/include/${folder} ${kernel_headers}/${folder} SYMBOLIC)
  endforeach()
  add_compile_options(-idirafter ${kernel_headers})
endif()
