#!/usr/bin/env bash
# A machine with nothing on it: Debian 12 with make and git, and `make demo` in a clone there.
#
#     tests/hosts/empty.sh make        makes the tree, if it is not there or is not whole
#     tests/hosts/empty.sh demo        copies it, clones the last commit into it, runs `make demo` there
#     tests/hosts/empty.sh clean       removes it
#
# The tree lies in the user's cache; tree.sh says how. Only the copy is changed, in target/hosts, and it
# is removed. What is fetched in there comes from where this machine gets its own. Needs root.
set -euo pipefail

repository=$(cd "$(dirname "$0")/../.." && pwd -P)
. "$repository/tests/hosts/tree.sh"

name="empty machine" suite=bookworm base=ca-certificates packages="make git"
answers="make --version
git --version"
tree_path

# What cargo and git on this machine need to reach the network, if anything.
lend() {
    local file=${CARGO_HOME:-${HOME:-/root}/.cargo}/config.toml
    [ ! -e "$file" ] || { mkdir -p "$1/root/.cargo" && cp -L "$file" "$1/root/.cargo/config.toml"; }
    cp -L /etc/ssl/certs/ca-certificates.crt "$1/etc/ssl/certs/ca-certificates.crt"
    cp -L /etc/resolv.conf "$1/etc/resolv.conf"
}

demo() {
    local copy=$repository/target/hosts/empty status
    tree_make
    rm -rf --one-file-system "$copy"
    mkdir -p "${copy%/*}"
    cp -a "$tree" "$copy"
    rmdir "$copy/hawser"
    lend "$copy"
    git -c safe.directory='*' clone -q --no-hardlinks "$repository" "$copy/root/hawser"
    say "make demo"
    (work=/root/hawser tree_run "$copy" make demo) && status=0 || status=$?
    rm -rf --one-file-system "$copy"
    if [ $status = 0 ]; then echo "ok make demo on an empty machine"; else echo "not ok make demo on an empty machine"; fi
    echo "$((status == 0)) passed, $((status != 0)) failed"
    return $status
}

case ${1:-} in
make) tree_make ;;
demo) demo ;;
clean) rm -rf --one-file-system "$tree" "$tree.new" ;;
*) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0"; exit 2 ;;
esac
