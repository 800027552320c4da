#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Fuzz what reads files and other processes, guided by coverage. New inputs that reach new code are kept in build/fuzz/corpus.
#
#   fuzz.sh [SECONDS [TARGET...]]   a minute of each target, beginning with the kept corpus, tools/fuzz/corpus
#   fuzz.sh --minimize [TARGET...]  the inputs that were found, without those that add nothing, in build/fuzz/smallest
#
# Targets, all by default: trace (the format of our own), the text formats ms, jsonl, heaptrack, mtrace, profile (of massif and gperftools),
# check (raw reports) and suppressions, and what the kernel says of processes, proc; and of another process's memory its heaps, heaps, and its statistics page, stats.
# Exit status: 0 nothing found, 77 no nightly compiler, else that of libFuzzer; what it found is in build/fuzz/TARGET-*.
set -euo pipefail
all=(trace ms jsonl heaptrack mtrace profile proc heaps stats check suppressions)
root=$(cd "$(dirname "$0")/.." && pwd)
out=${QUARRY_BUILD_DIR:-$root/build}/fuzz
minimize=
if [ "${1:-}" = --minimize ]; then
    minimize=1
    seconds=0
else
    seconds=${1:-60}
fi
shift $(($# > 0 ? 1 : 0))
targets=("$@")
[ $# -gt 0 ] || targets=("${all[@]}")
for target in "${targets[@]}"; do
    if [[ ! " ${all[*]} " == *" $target "* || ! $seconds =~ ^[0-9]+$ ]]; then
        echo "usage: fuzz.sh [SECONDS | --minimize] [TARGET...]; targets: ${all[*]}" >&2
        exit 2
    fi
done
export PATH=$PATH:$HOME/.cargo/bin
if ! rustc +nightly --version >/dev/null 2>&1; then
    echo "skipped: needs a nightly compiler (rustup toolchain install nightly)"
    exit 77
fi

# What cargo-fuzz would pass.
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Clink-dead-code -Zsanitizer=address -Ccodegen-units=1"
triple=$(rustc +nightly -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$out/target}
cargo +nightly build --quiet --release --target "$triple" --manifest-path "$root/tools/fuzz/Cargo.toml" --bins
# A file may be read with 64 MiB beside twice its length; the rest is what the sanitizer and the analysis take.
limits=(-rss_limit_mb=1024 -timeout=20 -max_len=16384)

for target in "${targets[@]}"; do
    program=$CARGO_TARGET_DIR/$triple/release/$target
    kept=$root/tools/fuzz/corpus/$target
    found=$out/corpus/$target
    mkdir -p "$found"
    echo "fuzz.sh: $target"
    if [ -n "$minimize" ]; then
        smallest=$out/smallest/$target
        rm -rf "$smallest"
        mkdir -p "$smallest"
        # Kept ones come first, so that they stay.
        "$program" -merge=1 "${limits[@]}" "$smallest" "$kept" "$found"
        echo "$(find "$smallest" -type f | wc -l) inputs, $(du -sh --apparent-size "$smallest" | cut -f1), in $smallest"
    else
        "$program" -max_total_time="$seconds" -print_final_stats=1 -artifact_prefix="$out/$target-" "${limits[@]}" "$found" "$kept"
    fi
done
