#!/usr/bin/env bash
# The second host: Debian 13's Open MPI 5.0 and libfabric 2.1 in a folder, beside this machine's own.
#
#     tests/hosts/debian13.sh make            makes it, if it is not there or is not whole
#     tests/hosts/debian13.sh run -- CMD …    runs a command there, with the repository at /hawser
#     tests/hosts/debian13.sh able            says in one line why this machine cannot, if it cannot
#     tests/hosts/debian13.sh path            where it lies; fails if it is not there
#     tests/hosts/debian13.sh clean           removes it
#
# It lies in the user's cache, and all checkouts share it; tree.sh says how. HAWSER_CHROOT names a
# folder to use in its place. Needs root (chroot and private mounts) and debootstrap.
set -euo pipefail

repository=$(cd "$(dirname "$0")/../.." && pwd -P)
. "$repository/tests/hosts/tree.sh"

name="second host" suite=trixie base=ca-certificates
packages="openmpi-bin libopenmpi-dev libfabric-dev libfabric-bin gcc libc6-dev make python3 python3-dev python3-venv procps valgrind libibverbs-dev librdmacm-dev ibverbs-utils rdmacm-utils"
answers="ompi_info --version
fi_info --version
mpicc --version
python3 --version
valgrind --version"
tree_path

case ${1:-} in
make) tree_make ;;
able) tree_able ;;
path) echo "$tree" && [ -d "$tree/usr" ] ;;
run)
    [ "${2:-}" = -- ] || { echo "usage: $0 run -- COMMAND …" >&2; exit 2; }
    [ -d "$tree/usr" ] || { say "is not there; make it with: tests/hosts/debian13.sh make" >&2; exit 1; }
    tree_run "$tree" "${@:3}"
    ;;
clean) [ -n "$given" ] || rm -rf --one-file-system "$tree" "$tree.new" ;;
*) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0"; exit 2 ;;
esac
