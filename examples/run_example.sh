#!/bin/bash
# SPDX-License-Identifier: MIT
# run_example.sh PROGRAM EXPECTED: run an example and compare what it prints.
set -euo pipefail
diff -u "$2" <("$1")
