# SPDX-License-Identifier: MIT
# QuarryTest.cmake: qy_test and qy_script_test, the two ways to add a test.
#
#   qy_test(NAME SOURCES a.c b.c [LIBS target...] [LABELS unit] [ARGS ...] [ENV K=V ...]
#           [TIMEOUT seconds] [PRELOAD] [FAKE] [THREAD_CASES ...])
#     A program; target and test are called NAME. PRELOAD and FAKE run it under
#     libquarry-malloc.so and libquarry-malloc-fake.so. Without SOURCES the program of another
#     qy_test is run again: qy_test(NAME PROGRAM other [LABELS] [ARGS] ...).
#   qy_script_test(NAME COMMAND script args... [LABELS ..] [ENV ..] [TIMEOUT s])
#     A script of this folder (.py by python3, .sh by bash, else by itself) or any command. It finds
#     QUARRY_LIB_DIR, QUARRY_BUILD_DIR and QUARRY_SOURCE_DIR in its environment.
#
# Labels: unit api stress death fault threads programs layers bench, and torture for what takes long. level-2 besides: the programs
# are built by the target level_2, and the step of that name runs them with libraries whose assertions walk whole structures.
# Exit code 77 is a skip. A sanitizer cannot share a process with another malloc, so sanitizer
# builds leave out tests that need a shared library or a preload, and all scripts. ThreadSanitizer looks at
# programs that make threads, or in which the heap's own thread is at work; of those with THREAD_CASES, at these cases alone. A build for another
# processor or C library (QUARRY_PORT) leaves out scripts, what is in C++, and what FAKE needs.

find_package(Python3 REQUIRED COMPONENTS Interpreter)
find_package(Threads REQUIRED)

# What tests do on purpose: leak, misuse, ask for too much. Calls to malloc and free must be made.
set(quarry_test_options -Wall -Wextra -Wundef
  -fno-builtin-malloc -fno-builtin-calloc -fno-builtin-realloc -fno-builtin-free
  $<$<COMPILE_LANG_AND_ID:C,GNU>:-Wno-use-after-free>
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-use-after-free>
  $<$<COMPILE_LANG_AND_ID:C,GNU>:-Wno-alloc-size-larger-than>
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-alloc-size-larger-than>
  $<$<COMPILE_LANG_AND_ID:C,GNU>:-Wno-free-nonheap-object>
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-free-nonheap-object>)

# How they are compiled in builds with optimised libraries. Their own speed is not tested, and nobody steps through them. What a compiler
# sees only when it optimises, gcc sees. A folder for which it matters sets this to something else.
set(quarry_test_speed)
if(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo" AND NOT QUARRY_SANITIZE)
  set(quarry_test_speed -O1 -g1)
  if(NOT CMAKE_C_COMPILER_ID STREQUAL "GNU")
    set(quarry_test_speed -O0 -g1)
  endif()
endif()

set(quarry_test_env
  QUARRY_LIB_DIR=${PROJECT_BINARY_DIR}/lib
  QUARRY_BUILD_DIR=${PROJECT_BINARY_DIR}
  QUARRY_SOURCE_DIR=${PROJECT_SOURCE_DIR}
  # Memory that only our blocks point to looks leaked to ASan: it knows nothing of them.
  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:handle_abort=0:detect_stack_use_after_return=0
  UBSAN_OPTIONS=print_stacktrace=1
  TSAN_OPTIONS=halt_on_error=1:history_size=4:allocator_may_return_null=1:atexit_sleep_ms=100)

# Of another processor only qemu-user's own argument reaches the program's dynamic linker and not that of the emulator.
set(quarry_test_preload LD_PRELOAD)
if(CMAKE_CROSSCOMPILING)
  set(quarry_test_preload QEMU_SET_ENV=LD_PRELOAD)
endif()

add_custom_target(level_2)

# Common properties of a test.
macro(qy_test_properties name)
  set_tests_properties(${name} PROPERTIES
    ENVIRONMENT "${quarry_test_env};${arg_ENV}" LABELS "${arg_LABELS}" SKIP_RETURN_CODE 77)
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 900)  # it only ends a hang: see TEST_PATIENCE in tests/harness.h
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT})
endmacro()

# Whether one of the sources makes threads or has the heap's helper thread at work.
function(qy_threads ret)
  list(FILTER ARGN EXCLUDE REGEX "TARGET_OBJECTS")
  foreach(source IN LISTS ARGN)
    file(STRINGS ${source} lines REGEX "pthread_create|thrd_create|std::thread|begin_thread|heap/helper[.]h" LIMIT_COUNT 1)
    if(lines)
      set(${ret} TRUE PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(${ret} FALSE PARENT_SCOPE)
endfunction()

function(qy_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "PRELOAD;FAKE" "TIMEOUT;PROGRAM" "SOURCES;LIBS;LABELS;ARGS;ENV;THREAD_CASES")
  if(arg_UNPARSED_ARGUMENTS OR NOT (arg_SOURCES OR arg_PROGRAM))
    message(FATAL_ERROR "qy_test(${name}): no SOURCES, or what is ${arg_UNPARSED_ARGUMENTS}?")
  endif()
  if(QUARRY_SANITIZE AND (arg_PRELOAD OR arg_FAKE OR "${arg_LIBS}" MATCHES "quarry_(malloc|shared)"))
    return()
  endif()
  if((arg_FAKE AND NOT TARGET quarry_malloc_fake) OR (QUARRY_PORT AND arg_SOURCES MATCHES "\\.cpp(;|$)"))
    return()
  endif()
  if(arg_SOURCES)
    add_executable(${name} ${arg_SOURCES})
    set_target_properties(${name} PROPERTIES C_STANDARD 17 C_EXTENSIONS ON CXX_STANDARD 17)
    target_compile_options(${name} PRIVATE ${quarry_test_speed} ${quarry_test_options})
    target_compile_definitions(${name} PRIVATE _GNU_SOURCE)
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_link_libraries(${name} PRIVATE ${arg_LIBS} quarry_headers Threads::Threads ${CMAKE_DL_LIBS})
    set(arg_PROGRAM ${name})
    qy_threads(threads ${arg_SOURCES})
    if(QUARRY_SANITIZE MATCHES "thread" AND NOT threads)
      set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    endif()
  elseif(NOT TARGET ${arg_PROGRAM})
    return()  # left out above
  endif()
  get_target_property(excluded ${arg_PROGRAM} EXCLUDE_FROM_ALL)
  if(excluded)
    return()
  endif()
  if("level-2" IN_LIST arg_LABELS)
    add_dependencies(level_2 ${arg_PROGRAM})
  endif()
  if(arg_SOURCES AND (arg_PRELOAD OR arg_FAKE))
    target_compile_definitions(${name} PRIVATE TEST_PRELOADED)
  endif()
  if(arg_PRELOAD)
    add_dependencies(${arg_PROGRAM} quarry_malloc)
    list(APPEND arg_ENV "${quarry_test_preload}=$<TARGET_FILE:quarry_malloc>")
  elseif(arg_FAKE)
    add_dependencies(${arg_PROGRAM} quarry_malloc_fake)
    list(APPEND arg_ENV "${quarry_test_preload}=$<TARGET_FILE:quarry_malloc_fake>")
  endif()
  if(QUARRY_SANITIZE MATCHES "thread")
    if(arg_THREAD_CASES)
      set(arg_ARGS ${arg_THREAD_CASES})
    endif()
  endif()
  add_test(NAME ${name} COMMAND ${arg_PROGRAM} ${arg_ARGS})
  qy_test_properties(${name})
endfunction()

function(qy_script_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "COMMAND;LABELS;ENV")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_COMMAND)
    message(FATAL_ERROR "qy_script_test(${name}): no COMMAND, or what is ${arg_UNPARSED_ARGUMENTS}?")
  endif()
  if(QUARRY_SANITIZE OR QUARRY_PORT)
    return()
  endif()
  list(POP_FRONT arg_COMMAND script)
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${script})
    set(script ${CMAKE_CURRENT_SOURCE_DIR}/${script})
  endif()
  if(script MATCHES "\\.py$")
    set(script ${Python3_EXECUTABLE} ${script})
  elseif(script MATCHES "\\.sh$")
    set(script bash ${script})
  endif()
  add_test(NAME ${name} COMMAND ${script} ${arg_COMMAND})
  qy_test_properties(${name})
endfunction()
