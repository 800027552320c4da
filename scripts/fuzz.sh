#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Fuzz what reads files, guided by coverage. New inputs that reach new code are kept in build/fuzz/corpus.
#
#   fuzz.sh [SECONDS [TARGET]]   a minute of the target "trace", beginning with the kept corpus
#   fuzz.sh --minimize [TARGET]  make the kept corpus, tools/fuzz/corpus, from all inputs that were found
#
# Exit status: 0 nothing found, 77 no nightly compiler, else that of libFuzzer; what it found is in build/fuzz.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
out=${QUARRY_BUILD_DIR:-$root/build}/fuzz
minimize=
if [ "${1:-}" = --minimize ]; then
    minimize=1
    shift
    set -- 0 "$@"
fi
seconds=${1:-60}
target=${2:-trace}
export PATH=$PATH:$HOME/.cargo/bin
if ! rustc +nightly --version >/dev/null 2>&1; then
    echo "skipped: no nightly compiler (rustup toolchain install nightly)"
    exit 77
fi

# What cargo-fuzz would pass.
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Clink-dead-code -Zsanitizer=address -Ccodegen-units=1"
triple=$(rustc +nightly -vV | sed -n 's/^host: //p')
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$out/target}
cargo +nightly build --quiet --release --target "$triple" --manifest-path "$root/tools/fuzz/Cargo.toml" --bin "$target"
program=$CARGO_TARGET_DIR/$triple/release/$target
kept=$root/tools/fuzz/corpus/$target
found=$out/corpus/$target
mkdir -p "$kept" "$found"
# A file may be read with 64 MiB beside twice its length; the rest is what the sanitizer and the analysis take.
limits=(-rss_limit_mb=1024 -timeout=20 -max_len=16384)

if [ -n "$minimize" ]; then
    new=$(mktemp -d)
    "$program" -merge=1 "${limits[@]}" "$new" "$kept" "$found"
    rm -rf "$kept"
    mv "$new" "$kept"
    chmod 755 "$kept"
    echo "$(find "$kept" -type f | wc -l) inputs, $(du -sh --apparent-size "$kept" | cut -f1)"
    exit
fi
cd "$out"
exec "$program" -max_total_time="$seconds" -print_final_stats=1 "${limits[@]}" "$found" "$kept"
