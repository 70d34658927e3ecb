#!/usr/bin/env bash
# Compiles the MPI programs of c-tests/mpi for a host, once for all steps that run them there.
#
#     c-tests/programs.sh debian12|debian13
#
# The last line is `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 2

. c-tests/host.sh

host_use "${1-}" || { echo "usage: $0 debian12|debian13" >&2; exit 2; }
work=target/c-tests/$host/all
mkdir -p "$work/logs" || exit 2
[ -e target/mca/libhawser.so ] || give_up "target/mca is there: make stage"
if mpi_compile $(basename -s .c c-tests/mpi/*.c); then ok "$host: the programs of c-tests/mpi compile"; fi
sum
