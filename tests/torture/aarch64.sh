#!/bin/bash
# SPDX-License-Identifier: MIT
# aarch64.sh BYTES: the libraries for aarch64, and tests in C by qemu-user, on pages of so many bytes.
#
# Everything is compiled, with warnings as errors. The preset says which tests run: conformance, threads, fork, giving back; linked,
# preloaded, static and static-pie. What the emulator (qemu-user 7.2) cannot do is left out:
#  - Children of a process with threads cannot have threads: it ends them by an assertion of its own, without Quarry as well.
#  - Nobody starts a program for aarch64 from within one, unless the machine's kernel has been told to use the emulator.
#  - Limits and counts of address space are the emulator's own, and it has a record for each page: terabytes take for ever.
#  - There is no seccomp, so the helper thread ends at once where the process has privileges.
set -eu
for command in aarch64-linux-gnu-gcc qemu-aarch64; do
    if ! command -v "$command" >/dev/null; then
        echo "SKIP: needs $command (scripts/setup.sh torture)"
        exit 77
    fi
done
cd "$(dirname "$0")/../.."
cmake --preset aarch64
cmake --build --preset aarch64
printf '%s\n' '#include <stdio.h>' '#include <unistd.h>' 'int main(void) { return printf("%ld\n", sysconf(_SC_PAGESIZE)) < 0; }' |
    aarch64-linux-gnu-gcc -o build-aarch64/page_bytes -x c -
export QEMU_PAGESIZE=$1
# Since 9.0 qemu has pages of one size, whatever it is told.
has=$(qemu-aarch64 -L /usr/aarch64-linux-gnu build-aarch64/page_bytes)
if [ "$has" != "$1" ]; then
    echo "SKIP: needs a qemu-aarch64 with pages of $1 bytes: $(qemu-aarch64 --version | head -n 1) has $has"
    exit 77
fi
# One more at a time than processors: many tests sleep.
ctest --preset aarch64 -j $(($(nproc) + 1))
