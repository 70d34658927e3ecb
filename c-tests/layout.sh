#!/bin/sh
# Compiles the layout checks against a host's own headers and runs them there.
#
# usage: c-tests/layout.sh debian12|debian13
#
# debian12 is this machine (Open MPI 4.1, libfabric 1.17), debian13 the chroot that
# tests/hosts/debian13.sh keeps (Open MPI 5.0, libfabric 2.1). The last line is
# `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 2

host=${1-}
libraries=/usr/lib/x86_64-linux-gnu
flags="-std=gnu11 -O1 -Wall -Wextra -Wpedantic -Werror -Iinclude -Ic-tests/layout"
host_headers="-isystem $libraries/openmpi/include -isystem $libraries/openmpi/include/openmpi"
case $host in
debian12)
    run=
    abi=v4_1
    ;;
debian13)
    run="tests/hosts/debian13.sh run --"
    abi=v5_0
    flags="$flags -Ic-tests/layout/stubs"
    host_headers="$host_headers -isystem $libraries/pmix2/include"
    ;;
*)
    echo "usage: $0 debian12|debian13" >&2
    exit 2
    ;;
esac

passed=0
failed=0
work=target/layout/$host
mkdir -p "$work" || exit 2

# check NAME FLAGS: compiles and runs one program; shows only what differs.
check() {
    log=$work/$1.log
    # $run and the flags are word lists.
    # shellcheck disable=SC2086
    if ! $run cc $flags $2 "c-tests/layout/$1.c" -o "$work/$1" >"$log" 2>&1; then
        cat "$log"
        echo "$host $1: does not compile"
        failed=$((failed + 1))
        return
    fi
    # shellcheck disable=SC2086
    $run "$work/$1" >"$log" 2>&1
    status=$?
    grep '^not ok' "$log"
    good=$(grep -c '^ok' "$log")
    bad=$(grep -c '^not ok' "$log")
    # A crash, or a program that checked nothing, is a failure too.
    if [ "$good" -eq 0 ] || { [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; }; then
        cat "$log"
        bad=$((bad + 1))
    fi
    echo "$host $1: $good passed, $bad failed"
    passed=$((passed + good))
    failed=$((failed + bad))
}

check "$abi" "$host_headers"
[ "$abi" != v5_0 ] || check v5_0_cuda "$host_headers"
check libfabric ""
check gni ""
check verbs ""
check rdmacm ""
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
