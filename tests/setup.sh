#!/usr/bin/env bash
# Installs the Debian packages that hawser is built and tested with, naming each; only what is missing.
#
#     tests/setup.sh build | test      what building needs, or all that the tests need too
#     tests/setup.sh build --check     installs nothing; says what is missing
set -euo pipefail

build="gcc libc6-dev make pkg-config clang libclang-dev libfabric-dev"
test="openmpi-bin libopenmpi-dev libfabric-bin debootstrap valgrind python3 python3-venv python3-dev iproute2 nftables procps"

case ${1:-} in
build) wanted=$build ;;
test) wanted="$build $test" ;;
*) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0"; exit 2 ;;
esac

missing=
for package in $wanted; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
if [ -n "$missing" ]; then
    if [ "${2:-}" = --check ]; then
        echo "missing Debian packages:$missing; make setup installs them"
        exit 1
    fi
    become=
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || { echo "run as root: apt-get install$missing"; exit 1; }
        become=sudo
    fi
    echo "installing Debian packages:$missing"
    $become apt-get update -q
    # shellcheck disable=SC2086 # a list of words
    $become env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
fi

if ! command -v cargo >/dev/null; then
    echo "cargo is missing: install Rust 1.92 or newer with rustup (Debian 12's own rustc is too old)"
    exit 1
fi
version=$(rustc --version | sed 's/^rustc \([0-9]*\.[0-9]*\).*/\1/')
if [ "$(printf '%s\n' 1.92 "$version" | sort -V | head -n 1)" != 1.92 ]; then
    echo "rustc $version is too old: hawser needs 1.92 or newer (rustup update)"
    exit 1
fi
