#!/bin/bash
# SPDX-License-Identifier: MIT
# An embedded database in memory: 4 million blocks, most of them small and short-lived.
#   sqlite.sh [--rows N]
[ "${1-}" = --rows ] && shift
exec sqlite3 :memory: < <(sed "s/i < 60000/i < ${1-60000}/" "$(dirname "$0")/../../examples/run/load.sql")
