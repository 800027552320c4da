#!/bin/bash
# SPDX-License-Identifier: MIT
# install.sh CC CXX: install into a temporary folder and move it, because the package must be relocatable. Then build and run a C and a C++
# program against it with find_package and with pkg-config, and one against the source tree with add_subdirectory. At the end uninstall it.
set -euo pipefail
export CC=$1 CXX=$2
consumer=$QUARRY_SOURCE_DIR/tests/install/consumer
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset DESTDIR LD_PRELOAD

quietly() {
    "$@" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
}

quietly cmake --install "$QUARRY_BUILD_DIR" --prefix "$work/first"
prefix=$work/moved
mv "$work/first" "$prefix"
if grep -rIl "$work/first" "$prefix"; then
    echo "FAILED: these installed files name the place of installation" >&2
    exit 1
fi

echo "== make builds what is installed"
ninja -C "$QUARRY_BUILD_DIR" -t graph product | sed -n 's|.*label="\([^"]*/\)\?\([^"]*\)".*|\2|p' | sort -u >"$work/product"
find "$prefix"/lib* -type f \( -perm /111 -o -name '*.a' \) ! -name '*.sh' -printf '%f\n' | sort -u >"$work/built"
[ "$(wc -l <"$work/built")" -gt 20 ] || { echo "FAILED: too few programs and libraries are installed" >&2; exit 1; }
if comm -13 "$work/product" "$work/built" | grep .; then
    echo "FAILED: these are installed, and \`make\` does not build them (the target product)" >&2
    exit 1
fi

echo "== install.md names the libraries"
for library in $(find "$prefix"/lib* -maxdepth 1 \( -name 'libquarry*.so' -o -name 'libquarry*.a' \) -printf '%f\n'); do
    grep -qF "/$library\`" "$QUARRY_SOURCE_DIR/docs/install.md" || { echo "FAILED: install.md does not name $library" >&2; exit 1; }
done

echo "== links of the README to documents"
for document in $(grep -o '](docs/[^)#]*\|]([A-Z]*\.md' "$prefix/share/doc/quarry/README.md" | sed 's/^](//' | grep -vx 'CONTRIBUTING.md' | sort -u); do
    [ -e "$prefix/share/doc/quarry/$document" ] || { echo "FAILED: $document is not installed" >&2; exit 1; }
done

echo "== find_package"
quietly cmake -S "$consumer" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix"
quietly cmake --build "$work/build"
for program in c_quarry c_static cxx_malloc cxx_malloc_static; do
    "$work/build/$program"
done

echo "== add_subdirectory"
quietly cmake -G Ninja -S "$consumer" -B "$work/sub" -Dquarry_source="$QUARRY_SOURCE_DIR"
quietly cmake --build "$work/sub" --target c_static
"$work/sub/c_static"

echo "== pkg-config"
pc=$(find "$prefix" -name quarry.pc)
PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH
libdir=$(pkg-config --variable=libdir quarry)
[ -e "$libdir/libquarry.so" ] || { echo "FAILED: libdir is $libdir" >&2; exit 1; }
# shellcheck disable=SC2046  # pkg-config prints several words
"$CC" "$consumer/consumer.c" -o "$work/c" $(pkg-config --cflags --libs quarry)
"$CXX" "$consumer/consumer.cpp" -o "$work/cxx" $(pkg-config --cflags --libs quarry-malloc)
"$CC" "$consumer/consumer.c" -o "$work/c_static" $(pkg-config --cflags quarry) "$libdir/libquarry.a"
LD_LIBRARY_PATH=$libdir "$work/c"
LD_LIBRARY_PATH=$libdir "$work/cxx"
"$work/c_static"

echo "== programs of the benchmarks"
for program in $(sed -n 's/^program = "\(.*\)"/\1/p' "$QUARRY_SOURCE_DIR/tools/crates/quarry-bench/catalog.toml" | grep -vx replay | sort -u); do
    [ -x "$libdir/quarry/bench/$program" ] || { echo "FAILED: $program of the catalogue is not installed" >&2; exit 1; }
done
[ "$("$libdir/quarry/bench/loads/sqlite.sh" --rows 100)" = "$("$QUARRY_SOURCE_DIR/bench/loads/sqlite.sh" --rows 100)" ]

echo "== preload"
LD_PRELOAD=$(realpath "$libdir/libquarry-malloc.so") "$work/c_static"

echo "== for comparisons"
if find "$prefix" -name '*pow2.so*' | grep .; then
    echo "FAILED: libquarry-pow2 is in the default install" >&2
    exit 1
fi
quietly cmake --install "$QUARRY_BUILD_DIR" --prefix "$prefix" --component comparisons
[ -e "$libdir/libquarry-pow2.so" ] || { echo "FAILED: there is no libquarry-pow2.so" >&2; exit 1; }

echo "== uninstall"
mkdir "$prefix/share/other" "$prefix/share/quarry/kept"
echo "not ours" | tee "$prefix/share/other/file" >"$prefix/share/quarry/kept/file"
quietly "$QUARRY_SOURCE_DIR/scripts/uninstall.sh" "$prefix"
left=$(cd "$prefix" && find . -type f -o -type l -o -name '*quarry*' | sort)
if [ "$left" != "./share/other/file
./share/quarry
./share/quarry/kept/file" ]; then
    printf 'FAILED: uninstalling left or took something else:\n%s\n' "$left" >&2
    exit 1
fi
export DESTDIR=$work/stage
quietly cmake --install "$QUARRY_BUILD_DIR" --prefix /usr/local
quietly "$QUARRY_SOURCE_DIR/scripts/uninstall.sh" /usr/local
left=$(find "$DESTDIR" ! -type d -o -name '*quarry*')
[ -z "$left" ] || { printf 'FAILED: uninstalling from DESTDIR left:\n%s\n' "$left" >&2; exit 1; }
if "$QUARRY_SOURCE_DIR/scripts/uninstall.sh" /usr/local 2>/dev/null; then
    echo "FAILED: what is not there could be uninstalled" >&2
    exit 1
fi
