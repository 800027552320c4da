#!/bin/bash
# SPDX-License-Identifier: MIT
# setup.sh build|run|test|torture|package: install what make of that name (`make` alone: build) needs and is missing.
#
# Says nothing and changes nothing when all is there. Needs apt; elsewhere it names what is missing.
# The groups "allocators", "programs" and "other platforms" are wished for: without them a comparison is
# shorter and tests of those programs and platforms are skipped. All others are needed.
set -euo pipefail
cd "$(dirname "$0")/.."

# What is needed, as command=package, or as a package alone where there is no command to look for.
# CMake looks for python3 as it configures, whatever is then built.
build="valgrind=valgrind gcc=gcc g++=g++ cmake=cmake ninja=ninja-build pkg-config=pkg-config python3=python3"
run="sqlite3=sqlite3"
allocators="libjemalloc2 libmimalloc2.0 libtcmalloc-minimal4 libtbbmalloc2"
test="clang=clang clang-format=clang-format clang-tidy=clang-tidy valgrind=valgrind git=git nm=binutils gdb=gdb spin=spin time"
programs="perl=perl zstd=zstd xz=xz-utils stress-ng=stress-ng memcached=memcached memcslap=libmemcached-tools top=procps setpriv=util-linux"
# What files of other tools are made with and read by, in tests of the tool.
programs+=" lz4=lz4 heaptrack_print=heaptrack mtrace=libc-devtools addr2line=binutils jeprof=libjemalloc-dev libgoogle-perftools4 dwz=dwz"
ports="musl-gcc=musl-tools"
package="dpkg-shlibdeps=dpkg-dev"
if [ "${1-}" = torture ]; then
    ports+=" aarch64-linux-gnu-gcc=gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-aarch64=qemu-user"
fi
for list in programs field; do
    if [ -r tests/$list/packages.txt ]; then
        programs+=" $(sed 's/#.*//' tests/$list/packages.txt | tr '\n' ' ')"
    fi
done
if [ "${1-}" = torture ] && [ -r tests/torture/packages.txt ]; then
    programs+=" $(sed 's/#.*//' tests/torture/packages.txt | tr '\n' ' ')"
fi

# is_there command=package: is the command found, or else the package installed?
is_there() {
    case $1 in
    *=*) command -v "${1%%=*}" >/dev/null && return ;;
    esac
    case " $installed " in
    *" ${1#*=} "*) return 0 ;;
    esac
    return 1
}

# missing_of entries...: the packages of those that are not there.
missing_of() {
    local entry
    for entry in "$@"; do
        is_there "$entry" || echo "${entry#*=}"
    done | sort -u | tr '\n' ' '
}

as_root=()
can_install() {
    command -v apt-get >/dev/null || return 1
    [ "$(id -u)" = 0 ] && return 0
    command -v sudo >/dev/null || return 1
    as_root=(sudo)
    [ -t 0 ] || as_root=(sudo -n)  # nobody there to type a password
    "${as_root[@]}" true 2>/dev/null
}

# Servers among the packages are for the tests, which start them themselves: policy-rc.d is how Debian is asked to start none.
apt_install() {
    local policy=/usr/sbin/policy-rc.d made=0 status=0
    if [ ! -e $policy ]; then
        made=1
        printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee $policy >/dev/null
        "${as_root[@]}" chmod 755 $policy
    fi
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" </dev/null >/dev/null || status=$?
    [ $made = 0 ] || "${as_root[@]}" rm -f $policy
    return $status
}

install_group() {
    local need=$1 group=$2 packages=$3 package
    local command="apt-get install -y --no-install-recommends $packages"
    echo "setup: missing for $group: $packages"
    if can_install; then
        # shellcheck disable=SC2086  # a list of words
        if apt_install $packages 2>/dev/null; then
            return
        fi
        "${as_root[@]}" apt-get update -qq </dev/null >/dev/null || true
        # One by one: one that this system does not have must not keep out the others.
        local all=1
        for package in $packages; do
            apt_install "$package" || all=0
        done
        [ $all = 0 ] || return 0
        echo "setup: could not install all of them" >&2
    fi
    echo "setup: please run, as root:  $command" >&2
    if [ "$need" = needed ]; then
        failed=1
    else
        echo "setup: going on without" >&2
    fi
}

want() {
    local packages
    # shellcheck disable=SC2086  # a list of words
    packages=$(missing_of $3)
    [ -z "$packages" ] || install_group "$1" "$2" "$packages"
}

failed=0
goal=${1:?usage: setup.sh build|run|test|torture|package}
installed=
if command -v dpkg-query >/dev/null; then
    # shellcheck disable=SC2046,SC2086  # lists of words
    installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $(printf '%s\n' $build $run $allocators $test $programs $ports $package | sed 's/.*=//') 2>/dev/null |
        sed -n 's/^installed //p' | tr '\n' ' ') || true
fi

want needed "the build" "$build"
case $goal in
build) ;;
package) want needed "the package" "$package" ;;
run)
    want needed "the run" "$run"
    want wished allocators "$allocators"
    ;;
test | torture)
    want needed "the tests" "$run $test"
    want wished allocators "$allocators"
    want wished programs "$programs"
    want wished "other platforms" "$ports"
    ;;
*)
    echo "usage: setup.sh build|run|test|torture|package" >&2
    exit 2
    ;;
esac
if ! command -v cargo >/dev/null; then
    echo "setup: cargo is missing. The command line tool needs Rust (tools/Cargo.toml says which): https://rustup.rs" >&2
    failed=1
fi
exit $failed
