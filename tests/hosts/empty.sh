#!/usr/bin/env bash
# A machine with nothing on it: Debian 12 or 13 with make and git. What a newcomer does is done there.
#
#     tests/hosts/empty.sh make debian12|debian13      makes the tree, if it is not there or is not whole
#     tests/hosts/empty.sh demo debian12|debian13      `make demo` in a clone of the last commit, and then every command of
#                                                      README.md, as it stands there (readme.sh)
#     tests/hosts/empty.sh package                     builds the Debian package of the last commit, as Debian does, on a
#                                                      Debian 12; then on another one and on a Debian 13 installs it with
#                                                      apt, runs jobs over it, and removes it
#     tests/hosts/empty.sh clean debian12|debian13     removes the tree
#
# The tree lies in the user's cache; tree.sh says how. Only copies are changed, in target/hosts, and they
# are removed. What is fetched in there comes from where this machine gets its own. Needs root.
set -euo pipefail

repository=$(cd "$(dirname "$0")/../.." && pwd -P)
. "$repository/tests/hosts/tree.sh"
. "$repository/tests/hosts/readme.sh"

base=ca-certificates packages="make git"
answers="make --version
git --version"

# release debian12|debian13: of which the machines are from now on.
release() {
    case ${1:-} in
    debian12) suite=bookworm components=openmpi3 ;;
    debian13) suite=trixie components=openmpi40 ;;
    *) usage ;;
    esac
    name="empty $1" kind=empty-$suite
    tree_path
}

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0"; exit 2; }

# What cargo and git on this machine need to reach the network, if anything.
lend() {
    local file=${CARGO_HOME:-${HOME:-/root}/.cargo}/config.toml
    [ ! -e "$file" ] || { mkdir -p "$1/root/.cargo" && cp -L "$file" "$1/root/.cargo/config.toml"; }
    cp -L /etc/ssl/certs/ca-certificates.crt "$1/etc/ssl/certs/ca-certificates.crt"
    cp -L /etc/resolv.conf "$1/etc/resolv.conf"
}

# begin COPY: a machine of its own.
begin() {
    copy=$repository/target/hosts/$1
    tree_make
    rm -rf --one-file-system "$copy"
    mkdir -p "${copy%/*}"
    cp -a "$tree" "$copy"
    rmdir "$copy/hawser"
    lend "$copy"
}

# clone: the last commit, on it.
clone() { git -c safe.directory='*' clone -q --no-hardlinks "$repository" "$copy/root/hawser"; }

# on COMMAND…: there, in the folder of that clone, or in the one that `folder` names.
on() { (work=${where:-/root/hawser} tree_run "$copy" "$@"); }

passed=0 failed=0
# check TEXT COMMAND…: whether it succeeds. Its output is shown if it does not.
check() {
    if "${@:2}" >"$repository/target/hosts/log" 2>&1; then
        passed=$((passed + 1))
        echo "ok $1"
    else
        failed=$((failed + 1))
        echo "not ok $1"
        tail -n 40 "$repository/target/hosts/log"
    fi
}

finish() {
    rm -rf --one-file-system "$copy"
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ]
}

demo() {
    begin empty
    clone
    say "make demo"
    check "make demo on an $name" on make demo
    cp "$repository/target/hosts/log" "$repository/target/hosts/demo-$1.txt"
    readme "$1"
    finish
}

# install PACKAGE…: with apt.
install() { where=/root on env DEBIAN_FRONTEND=noninteractive apt-get install -y "$@"; }

# job WANTED OPTION…: the ring of bench/ring.c runs with these options, and says in both ranks what it is served by.
job() {
    local wanted=$1
    shift
    where=/root on mpirun -n 2 --oversubscribe "$@" /root/ring >"$copy/root/ring.out" 2>&1 || { cat "$copy/root/ring.out"; return 1; }
    cat "$copy/root/ring.out"
    grep -q ', 0 wrong$' "$copy/root/ring.out" && [ "$(grep -c "$wanted" "$copy/root/ring.out")" = 2 ]
}

# traces: files that could be hawser's, but for what dpkg keeps in its logs, and apt of what it fetched.
traces() { find "$copy" -xdev \( -path "$copy/root" -o -path "$copy/var" \) -prune -o \( -name '*hawser*' -o -name 'mca_btl_usnic*' \) -print; }

# manual_pages: where the package has those of docs/.
manual_pages() {
    local page
    for page in "$repository"/docs/*.[1-8]; do echo "/usr/share/man/man${page##*.}/${page##*/}.gz"; done
}

# there FILES: each, one a line, is a file with something in it.
there() {
    local file status=0
    while read -r file; do
        [ -s "$copy$file" ] || { echo "no $file"; status=1; }
    done <<<"$1"
    return $status
}

package() {
    local shelf=$repository/target/hosts/packages
    release debian12
    begin builder
    clone
    rm -rf "$shelf"
    mkdir -p "$shelf"
    say "1/4 installing what the package is built with"
    check "what it is built with is there" install --no-install-recommends dpkg-dev debhelper
    check "debian/control names the rest" on env DEBIAN_FRONTEND=noninteractive apt-get build-dep -y --no-install-recommends ./
    say "2/4 dpkg-buildpackage"
    check "dpkg-buildpackage" on dpkg-buildpackage -b -us -uc
    cp "$copy"/root/*.deb "$shelf/" || true
    check "it says since when each function is there" eval \
        'dpkg-deb -I "$(echo "$shelf"/hawser_*.deb)" symbols | tee /dev/stderr | grep "^ hawser_btl_find@Base 0" >/dev/null'
    cp "$copy/root/hawser/bench/"{ring.c,served_by.h} "$shelf/"
    rm -rf --one-file-system "$copy"

    rm "$shelf/"*-dbgsym_* 2>/dev/null || true
    try debian12
    try debian13
    finish
}

# try debian12|debian13: the package on a machine of that release.
try() {
    local installed=/usr/lib/x86_64-linux-gnu/libhawser.so.0 own ofi
    release "$1"
    begin user
    # What Open MPI 5.0 of Debian 13 has to be told: its mpirun names another folder (docs/administrators.md).
    own=()
    [ "$1" = debian12 ] || own=(--mca mca_base_component_path "/usr/lib/x86_64-linux-gnu/openmpi/lib/$components")
    ofi='tcp;ofi_rxm'
    [ "$1" = debian12 ] || ofi=tcp
    cp "$shelf/"* "$copy/root/"
    traces >"$shelf/before"
    say "3/4 apt install"
    # shellcheck disable=SC2016 # expanded there
    check "$1: apt installs it, with Open MPI" install "./$(cd "$shelf" && echo hawser_*.deb)"
    check "$1: no file of another package was replaced" eval 'where=/root on dpkg --verify'
    check "$1: hawser-info finds it, and Open MPI" eval "where=/root on hawser-info | tee /dev/stderr | grep 'accepts hawser\|accepted' >/dev/null"
    check "$1: hawser-info has an answer to why not" eval "where=/root on hawser-info --doctor | tee /dev/stderr | grep '^good  btl smcuda' >/dev/null"
    check "$1: hawser-perf measures" eval "where=/root on hawser-perf --local -s 8,4096 -n 100 | tee /dev/stderr | grep -E '^ +4096 +100( +[0-9.]+){3}\$' >/dev/null"
    check "$1: its manual pages are there, each" there "$(manual_pages)"
    check "$1: so is what it has for administrators, and for people who look at packets" there "/usr/share/doc/hawser/administrators.md.gz
/usr/share/doc/hawser/README.md.gz
/usr/share/hawser/hawser-usnic.lua
/usr/share/hawser/help-hawser.txt"
    say "4/4 jobs"
    check "$1: a compiler" install --no-install-recommends gcc libc6-dev libopenmpi-dev pkg-config
    check "$1: a C program is built by pkg-config" eval "echo '#include <hawser/hawser.h>
#include <stdio.h>
int main(void) { return puts(hawser_version()) < 0; }' >\"\$copy/root/version.c\" && where=/root on sh -c 'cc version.c -o version \$(pkg-config --cflags --libs hawser) && ./version && ldd version | grep libhawser.so.0'"
    check "$1: the ring compiles" eval "where=/root on mpicc -O2 ring.c -o ring"
    check "$1: the OFI MTL is served by it" job "$installed" "${own[@]}" --mca pml cm --mca mtl hawser --mca mtl_hawser_provider_include "$ofi"
    check "$1: so is shared memory" job "$installed" "${own[@]}" --mca pml ob1 --mca btl smcuda,self
    check "$1: so are datagrams" job "$installed" "${own[@]}" --mca pml ob1 --mca btl usnic,self
    check "$1: a job that asks for nothing runs" job served
    check "$1: apt removes it" eval "where=/root on env DEBIAN_FRONTEND=noninteractive apt-get purge -y hawser"
    check "$1: nothing is left of it" eval 'traces | diff "$shelf/before" -'
    check "$1: the job runs without it" job served
    rm -rf --one-file-system "$copy"
}

case ${1:-} in
make) release "${2:-}" && tree_make ;;
demo) release "${2:-}" && demo "$2" ;;
package) package ;;
clean) release "${2:-}" && rm -rf --one-file-system "$tree" "$tree.new" ;;
*) usage ;;
esac
