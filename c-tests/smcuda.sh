#!/usr/bin/env bash
# The MPI programs of c-tests/mpi over the smcuda BTL, in a real mpirun, with `--mca btl smcuda,self`, and what
# happens when processes of a node die, are stopped, or may not read each other's memory.
#
#     c-tests/smcuda.sh debian12|debian13 [WORD …]
#
# debian12 is this machine, debian13 the chroot that tests/hosts/debian13.sh keeps. Needs target/mca
# (`make stage`). With words, only the runs whose line holds all of them. Each program checks itself,
# has a watchdog, and must say `PASS`. The last line is `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 2

. c-tests/host.sh

host_use "${1-}" || { echo "usage: $0 debian12|debian13 [WORD …]" >&2; exit 2; }
shift
words=("$@")
work=target/c-tests/$host/smcuda
mkdir -p "$work/logs" || exit 2

# run RANKS "PROGRAM ARGUMENT…" [OPTION …]
run() {
    local ranks=$1 command=$2
    shift 2
    mpi_job "smcuda, $ranks ranks: $command $*" "$ranks" "$command" --mca pml ob1 --mca btl smcuda,self "$@"
}

[ -e target/mca/libhawser.so ] || give_up "target/mca is there: make stage"
mpi_compile $(mpi_programs)

for program in p2p datatypes persist ibsend "truncate eager" cancel tags comms "rma allocate" bigmsg "flood 5000" "threads 100" forks spawn "spawn ports"; do
    run 2 "$program"
done
# Of long messages that were matched first, ob1 gets all bytes, also those that find no room (4.1 and 5.0, with
# every BTL that has GET): only short ones may be truncated so.
run 2 "probe eager" --mca btl_smcuda_eager_limit 8192
for program in coll intercomm mixed "p2p small" tags; do run 4 "$program"; done
# A thread level that is told late, or to a session only.
for order in session second late; do
    [ "$host" = debian12 ] || run 2 "sessions_threads $order"
done
# Nothing is copied in one step, everything in fragments.
for program in p2p datatypes "rma allocate" bigmsg; do run 2 "$program" --mca btl_smcuda_flags send; done
run 4 coll --mca btl_smcuda_flags send --mca btl_smcuda_max_send_size 1500
# More processes than rings that are looked at: the others ring.
run 40 "p2p small"
run 2 p2p --mca mpi_yield_when_idle 0

sum
