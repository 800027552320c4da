#!/bin/bash
# SPDX-License-Identifier: MIT
# run.sh [STEP...]: what takes long; all steps if none is named. Run it as it is, or by `make torture`.
#
#   all      every program of tests/programs, those that take long too, three times
#   short    the programs that do not take long, three times
#   others   the settings below: the short programs once with each
# To add a step, write a function called step_NAME; to add a setting, a line to the list.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
programs=$here/../programs/run.py

settings=(
    # Threads share heaps: every free may be one of another thread, every lock is fought for.
    one_arena=arenas:1
    two_arenas=arenas:2
    # Each call goes to the slabs: their states change all the time.
    no_cache=tcache:off
    no_cache_one_arena=tcache:off,arenas:1
    # Pages go back as soon as they are free, beside programs that take them again.
    purge_soon=purge_delay:10
    purge_soon_one_arena=purge_delay:10,arenas:1
    no_purge=purge:off
    no_purge_thread=purge_thread:off
)

step_all() { "$programs" --torture --times 3; }
step_short() { "$programs" --times 3; }
step_others() {
    local setting result=77 status
    for setting in "${settings[@]}"; do
        "$0" "${setting%%=*}"
        status=$?
        case $status in
        77) ;;
        0) [ $result != 77 ] || result=0 ;;
        *) result=1 ;;
        esac
    done
    return $result
}

step() {
    local setting
    for setting in "${settings[@]}"; do
        if [ "$1" = "${setting%%=*}" ]; then
            echo "== $1: QUARRY_CONF=${setting#*=}"
            QUARRY_CONF=${setting#*=} "$programs"
            return
        fi
    done
    if ! declare -F "step_$1" >/dev/null; then
        echo "run.sh: no step $1; there are: all short others ${settings[*]%%=*}" >&2
        return 2
    fi
    echo "== $1"
    "step_$1"
}

if [ "${1-}" = --settings ]; then
    printf '%s\n' "${settings[@]%%=*}"
    exit
fi
[ $# != 0 ] || set -- all others
failed=0 passed=0
for name in "$@"; do
    step "$name"
    status=$?
    case $status in
    0) passed=1 ;;
    77) ;;
    *) failed=1 ;;
    esac
done
[ $failed = 0 ] || exit 1
[ $passed = 1 ] || exit 77
