#!/bin/bash
# SPDX-License-Identifier: MIT
# An embedded database in memory: 4 million blocks, most of them small and short-lived.
exec sqlite3 :memory: ".read $(dirname "$0")/../../examples/run/load.sql"
