#!/usr/bin/env bash
# A machine of a cluster: Open MPI, Slurm, a debugger and what makes containers, from Debian's packages, in a folder.
# Nothing of it is installed on this machine, because its packages start daemons.
#
#     tests/hosts/cluster.sh debian12|debian13 make            makes it, if it is not there or is not whole
#     tests/hosts/cluster.sh debian12|debian13 run -- CMD …    runs a command there, with the repository at /hawser
#     tests/hosts/cluster.sh debian12|debian13 path            where it lies; fails if it is not there
#     tests/hosts/cluster.sh debian12|debian13 clean           removes it
#
# It lies in the user's cache, and all checkouts share it; tree.sh says how. Needs root (private
# mounts) and debootstrap.
set -euo pipefail

repository=$(cd "$(dirname "$0")/../.." && pwd -P)
. "$repository/tests/hosts/tree.sh"

case ${1:-} in
debian12) suite=bookworm ;;
debian13) suite=trixie ;;
*) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0"; exit 2 ;;
esac
name="cluster of $1" kind=cluster-$suite own_root=yes base=ca-certificates
# Slurm of Debian 12 looks for PMIx by the name that only the development package has.
pmix=
[ $suite != bookworm ] || pmix=libpmix-dev
packages="openmpi-bin libfabric-bin slurmctld slurmd slurm-client munge gdb bubblewrap environment-modules iproute2 procps${pmix:+ $pmix}"
answers="ompi_info --version
slurmd -V
munge --version
gdb --version
bwrap --version"
tree_path

case ${2:-} in
make) tree_make ;;
path) echo "$tree" && [ -d "$tree/usr" ] ;;
run)
    [ "${3:-}" = -- ] || { echo "usage: $0 $1 run -- COMMAND …" >&2; exit 2; }
    [ -d "$tree/usr" ] || { say "is not there; make it with: tests/hosts/cluster.sh $1 make" >&2; exit 1; }
    tree_run "$tree" "${@:4}"
    ;;
clean) rm -rf --one-file-system "$tree" "$tree.new" ;;
*) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0"; exit 2 ;;
esac
