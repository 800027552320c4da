#!/bin/bash
# SPDX-License-Identifier: MIT
# An embedded database in memory: 4 million blocks, most of them small and short-lived.
#   sqlite.sh [--rows N]
[ "${1-}" = --rows ] && shift
here=$(dirname "$0")
load=$here/load.sql  # where it is installed
[ -e "$load" ] || load=$here/../../examples/run/load.sql
exec sqlite3 :memory: < <(sed "s/i < 60000/i < ${1-60000}/" "$load")
