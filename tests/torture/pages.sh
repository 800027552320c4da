#!/bin/bash
# SPDX-License-Identifier: MIT
# pages.sh: the page of a trace of more than 50 MB with 100,000 call stacks, in Chromium. It says how long the page took to open.
#
#   QUARRY_TEST_EVENTS=N  events of the trace (16,000,000)
#   QUARRY_TEST_RUNS=N    how often the page is opened (3)
# Exit 77 without cargo or chromium.
set -euo pipefail
cd "$(dirname "$0")/../.."
for program in cargo chromium; do
    if ! command -v "$program" >/dev/null; then
        echo "skipped: needs $program (the package $program)"
        exit 77
    fi
done
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/build/cargo}
cd tools
exec cargo test --profile bench -p quarry --test cli -- --ignored --nocapture pages_of_large_traces
