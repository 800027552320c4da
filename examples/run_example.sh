#!/bin/bash
# SPDX-License-Identifier: MIT
# run_example.sh PROGRAM EXPECTED: run an example and compare what it prints. Under libquarry-check it has neither an
# error nor a block that is lost.
set -euo pipefail
diff -u "$2" <("$1")
checker=${QUARRY_LIB_DIR:?}/libquarry-check.so
[ -e "$checker" ] || exit 0
reports=$(mktemp -d)
trap 'rm -rf "$reports"' EXIT
LD_PRELOAD=$checker QUARRY_CHECK=out:$reports,leaks:exit "$1" >/dev/null
grep -q '"scan":' "$reports"/*.check || { echo "FAILED: there is no report of $1" >&2; exit 1; }
if grep -hE '^\{"error"|"kind":"leak-(definite|indirect|possible)"' "$reports"/*.check; then
    echo "FAILED: $1 has errors" >&2
    exit 1
fi
