#!/usr/bin/env bash
# The MPI programs of c-tests/mpi over the usnic BTL, in a real mpirun, with `--mca btl usnic,self`.
#
#     c-tests/btl.sh debian12|debian13 [WORD …]
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
work=target/c-tests/$host/btl
mkdir -p "$work/logs" || exit 2

# run RANKS "PROGRAM ARGUMENT…" [OPTION …]
run() {
    local ranks=$1 command=$2
    shift 2
    mpi_job "usnic, $ranks ranks: $command $*" "$ranks" "$command" --mca pml ob1 --mca btl usnic,self "$@"
}

[ -e target/mca/libhawser.so ] || give_up "target/mca is there: make stage"
mpi_compile $(mpi_programs)

for program in p2p datatypes persist ibsend "probe eager" "truncate eager" cancel tags comms "rma allocate" bigmsg "flood 5000" "threads 100" forks spawn "spawn ports"; do
    run 2 "$program"
done
for program in coll intercomm mixed "p2p small" tags; do run 4 "$program"; done
run 2 "ahead 300000 8"
run 2 "ahead 20000 10000"
for order in after before; do run 2 "sampler btl_usnic_ $order"; done
# A thread level that is told late, or to a session only.
for order in session second late; do
    [ "$host" = debian12 ] || run 2 "sessions_threads $order"
done
run 2 p2p --mca btl_usnic_protect_payload 1
run 2 p2p --mca btl_usnic_if_include lo --mca btl_usnic_busy_poll 20
# Messages that wait for others do not wait for the program, which computes; where each has a datagram of its own, as
# many as there is room for.
run 2 "stranded $root/$work/stranded.50 1000" --mca btl_usnic_coalesce_delay 50
run 2 "stranded $root/$work/stranded.0 24" --mca btl_usnic_coalesce_delay 0
# Ports of this script's own: the other host's jobs may run beside these.
run 2 p2p --mca btl_usnic_if_include 127.0.0.0/8 --mca btl_usnic_base_udp_port $((16384 + $$ % 1000 * 16))
run 2 p2p --mca mpi_yield_when_idle 0
run 2 p2p --mca btl_usnic_link libfabric --mca btl_usnic_if_include lo

# launch WORD…: a job of two ranks that is not one of those above; fills `log` and `status`.
launch() {
    c-tests/patience.sh 100 "${there[@]}" mpirun --oversubscribe -n 2 --mca mca_base_component_path "$root/target/mca:$stock" \
        "${quiet[@]}" --mca pml ob1 "$@" "$root/$work/p2p" small >"$log" 2>&1 </dev/null
    status=$?
}

# declines TEXT OPTION…: the job cannot run so, and this line says why.
declines() {
    local text=$1 log=$work/logs/declines status
    shift
    launch --mca btl usnic,self "$@"
    if [ "$status" != 0 ] && [ "$status" != 124 ] && tr -s ' \n' ' ' <"$log" | grep -qF -- "$text"; then
        ok "usnic declines: $*"
    else
        not_ok "usnic declines: $* (status $status)" "$log"
    fi
}
declines "btl_usnic_if_include names nonsuch0, but there is no such interface here" --mca btl_usnic_if_include nonsuch0
declines "btl_usnic_if_include and btl_usnic_if_exclude exclude each other" --mca btl_usnic_if_include lo --mca btl_usnic_if_exclude lo
declines "btl_usnic_link is pigeon; it must be auto, libfabric or socket" --mca btl_usnic_link pigeon
declines "btl_usnic_retrans_timeout is 0; it must be 1 to" --mca btl_usnic_retrans_timeout 0
declines "10.0.0.0/99" --mca btl_usnic_if_include 10.0.0.0/99

# One process protects its packets and the other does not: they say so and do not wait for each other.
log=$work/logs/differently
# shellcheck disable=SC2016 # expanded there
c-tests/patience.sh 100 "${there[@]}" mpirun --oversubscribe -n 2 --mca mca_base_component_path "$root/target/mca:$stock" \
    "${quiet[@]}" --mca pml ob1 --mca btl usnic,self \
    sh -c 'export OMPI_MCA_btl_usnic_protect_payload=$OMPI_COMM_WORLD_RANK; exec "$@"' sh "$root/$work/p2p" small >"$log" 2>&1 </dev/null
status=$?
if [ "$status" != 0 ] && [ "$status" != 124 ] && tr -s ' \n' ' ' <"$log" | grep -q "protects payload differently (btl_usnic_protect_payload: [01] there, [01] here); all processes of a job must agree"; then
    ok "processes that protect their packets differently do not talk, and say why"
else
    not_ok "processes that protect their packets differently (status $status)" "$log"
fi

# Nobody asked for it: not a word, and not used.
log=$work/logs/unasked
launch --mca btl_base_verbose 100
if [ "$status" = 0 ] && grep -qx "PASS p2p" "$log" && grep -q "init of component usnic returned failure" "$log" && ! grep -q "hawser.*lost" "$log"; then
    ok "usnic offers nothing when nobody asks"
else
    not_ok "usnic offers nothing when nobody asks (status $status)" "$log"
fi

sum
