#!/usr/bin/env bash
# Installs the Debian packages that hawser is built and tested with, naming each; only what is missing.
#
#     tests/setup.sh build | test      what building needs, or all that the tests need too
#     tests/setup.sh bench             and what the page of `make bench` needs
#     tests/setup.sh whole             and what only the whole matrix needs
#     tests/setup.sh build --check     installs nothing; says what is missing
#     tests/setup.sh path              the PATH on which cargo is the one to use
#
# Where cargo is missing or too old, the distribution's newer one is installed if it has one: Debian keeps
# it for its web browsers, in packages of their own.
set -euo pipefail

rust=1.92
build="gcc libc6-dev make pkg-config clang libclang-dev libfabric-dev libibverbs-dev ca-certificates"
test="g++ librdmacm-dev ibverbs-utils rdmacm-utils openmpi-bin libopenmpi-dev libfabric-bin debootstrap valgrind python3 python3-venv python3-dev iproute2 nftables procps"
bench="gnuplot-nox"
# Chromium brings no fonts.
whole="tshark chromium fonts-dejavu-core"

# new_enough CARGO RUSTC: whether both can be called and are.
new_enough() {
    local version
    "$1" --version >/dev/null 2>&1 || return 1
    version=$("$2" --version 2>/dev/null | sed 's/^rustc \([0-9]*\.[0-9]*\).*/\1/')
    [ -n "$version" ] && [ "$(printf '%s\n' $rust "$version" | sort -V | head -n 1)" = $rust ]
}

# cargo_path: sets `path`, the PATH with a cargo that is new enough; or fails.
cargo_path() {
    path=$PATH
    new_enough cargo rustc && return
    # Not hidden by an older one that comes first.
    path=/usr/bin:$PATH
    new_enough /usr/bin/cargo /usr/bin/rustc
}

case ${1:-} in
build) wanted=$build ;;
test) wanted="$build $test" ;;
bench) wanted="$build $test $bench" ;;
whole) wanted="$build $test $bench $whole" ;;
path)
    cargo_path || path=$PATH
    echo "$path"
    exit
    ;;
*) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0"; exit 2 ;;
esac

missing=
for package in $wanted; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
compiler=
cargo_path || compiler="cargo-web rustc-web"

if [ "${2:-}" = --check ]; then
    [ -z "$missing" ] || echo "missing Debian packages:$missing; make setup installs them"
    [ -z "$compiler" ] || echo "Rust $rust or newer is missing; make setup installs it where the distribution has it"
    [ -z "$missing$compiler" ]
    exit
fi
[ -n "$missing$compiler" ] || exit 0

become=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "run as root: apt-get install$missing $compiler"; exit 1; }
    become=sudo
fi
install() {
    echo "installing Debian packages: $*"
    $become env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
}
$become apt-get update -q
# shellcheck disable=SC2086 # a list of words
[ -z "$missing" ] || install $missing
if [ -n "$compiler" ]; then
    version=$(apt-cache policy rustc-web | sed -n 's/ *Candidate: \([0-9]*\.[0-9]*\).*/\1/p')
    if [ -z "$version" ] || [ "$(printf '%s\n' $rust "$version" | sort -V | head -n 1)" != $rust ]; then
        echo "Rust $rust or newer is missing, and this distribution has none (rustc-web: ${version:-not there}): install it with rustup"
        exit 1
    fi
    # They take the place of the distribution's own Rust, and of nothing else.
    # shellcheck disable=SC2086 # a list of words
    gone=$(apt-get -s install --no-install-recommends $compiler | sed -n 's/^Remv \([^ ]*\).*/\1/p' |
        grep -vxE 'cargo|rustc|rustfmt|rust-(all|clippy|doc|gdb|lldb)|libstd-rust-dev' | paste -sd ' ') || true
    [ -z "$gone" ] || { echo "Rust $rust or newer is missing, and $compiler would remove $gone: install it with rustup"; exit 1; }
    # shellcheck disable=SC2086 # a list of words
    install $compiler
    cargo_path || { echo "Rust $rust or newer is installed, and does not run"; exit 1; }
fi
