#!/usr/bin/env bash
# Compares the usnic BTL with what else carries messages: in each round every one of them runs once,
# in turn, then the tables of bench/report. Losses are reported as plainly as wins.
#
#     bench/usnic.sh [--host debian12|debian13|all] [--networks N[,N...]] [--against A[,A...]]
#                    [--rounds N] [--parts P[,P...]] [--quick]
#
# --host        the default is all: this host, and Debian 13 if its tree was built
# --networks    lo, the loopback interface; veth-1500 and veth-9000, two hosts of c-tests/net/bed.sh
#               with that MTU, where the kernel hands segments of up to 64 KiB over whole, and cut-1500
#               and cut-9000, where they are cut into packets first. lo,veth-1500,veth-9000
# --against     tcp, the host's TCP BTL; rxd, its OFI MTL over udp;ofi_rxd, in two rounds only because
#               it is slow; udp, bare UDP (udp.c). tcp,rxd,udp
# --rounds      5
# --parts       speed, these comparisons, with the share of segments that the usnic BTL sends again;
#               short, the latency of messages up to 256 bytes beside bare UDP, in three times as many rounds,
#               because one process is now and then a third slower than the next, whatever it runs;
#               loss, goodput of usnic and TCP on cut-1500 while 0, 1 and 5 % of the packets are lost,
#               beside that without loss, in three rounds at most; stalls, what a message of 1 MiB costs a
#               receiver that was out of MPI for 100 and 300 ms, on veth-1500, without loss and at 0.2 %,
#               usnic beside TCP, in three rounds at most; protection, usnic with protect_payload beside
#               itself without, on veth-9000 and veth-1500. speed,short,loss,stalls,protection
# --quick       few sizes, 3 rounds
#
# All but lo needs root, for namespaces and devices of its own; without it that is said, and left out.

root=$(cd "$(dirname "$0")/.." && pwd -P)
cd "$root" || exit 2
. c-tests/host.sh
. c-tests/net/bed.sh
. bench/header.sh
set -euo pipefail

die() {
    echo "usnic.sh: $*" >&2
    exit 1
}

# subject NAME: sets `words`, what mpirun needs to hear, and `program`, which is `of`, with `device` to run over.
subject() {
    program=("$root/$results/$of" "${sizes[@]}")
    case $1 in
    usnic)
        words=(--mca pml ob1 --mca btl usnic,self --mca mca_base_component_path "$root/target/mca:$stock" "${quiet[@]}")
        [ "$device" = lo ] || words+=(--mca btl_usnic_if_include "$device")
        [ -z "$protect" ] || words+=(--mca btl_usnic_protect_payload "$protect")
        ;;
    tcp | udp)
        words=(--mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include "$device")
        # TCP of 5.0.7 finds no way over a device with IPv4 and IPv6.
        [ "$host" != debian13 ] || words+=(--mca btl_tcp_disable_family 6)
        [ "$1" = tcp ] || program=("$root/$results/udp" -i "$device" "${sizes[@]}")
        ;;
    rxd)
        words=(--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include "udp;ofi_rxd" -x FI_UDP_IFACE="$device")
        ;;
    *) die "no subject $1" ;;
    esac
}

# launch WORD…: runs mpirun for two ranks, which poll without yielding, a processor each if there are
# as many; on both hosts of the bed, which know nothing of each other's processors.
launch() {
    local yield=1 bind=none
    [ "$(nproc)" -lt 2 ] || yield=0 bind=core
    if [ "$device" = lo ]; then
        timeout --kill-after=10 300 "${there[@]}" mpirun -n 2 --oversubscribe --bind-to $bind --mca mpi_yield_when_idle $yield "$@"
        return
    fi
    local program_at=$(($# - ${#program[@]})) pinned=()
    # shellcheck disable=SC2016 # expanded there
    [ $bind = none ] || pinned=(sh -c 'exec taskset -c "$OMPI_COMM_WORLD_RANK" "$@"' sh)
    bed_on 1 timeout --kill-after=10 300 mpirun --host node1,node2 -n 2 --mca mpi_yield_when_idle $yield "${@:1:program_at}" "${pinned[@]}" "${program[@]}"
}

# measure SIDE NAME ROUND [loss=PERCENT]: one run, appended to the log.
measure() {
    local output=$results/usnic.out
    subject "$2"
    echo "run host=$host over=$network${protect:++protection}$suffix round=$3 side=$1 variant=$2 load=$(cut -d' ' -f1 /proc/loadavg)${4:+ $4}" >>"$log"
    if ! launch "${words[@]}" "${program[@]}" >"$output" 2>"$output.err" </dev/null; then
        cat "$output" "$output.err" >&2
        die "$host, $network: this run of $2 failed: ${words[*]} ${program[*]}"
    fi
    [ "$2" != usnic ] || [ "$(grep -cF " object=$root/target/mca/libhawser.so" "$output")" = 2 ] ||
        die "$host, $network: hawser did not serve both ranks: ${words[*]}"
    cat "$output" >>"$log"
    [ "$device" = lo ] || bed_sweep || true
}

# rounds: the speed of all.
rounds() {
    local round name
    for ((round = 1; round <= HAWSER_BENCH_ROUNDS; round++)); do
        printf '%s, %s: round %d of %d\n' "$host" "$network" "$round" "$HAWSER_BENCH_ROUNDS" >&2
        measure candidate usnic "$round"
        for name in ${HAWSER_BENCH_AGAINST//,/ }; do
            [ "$name" != rxd ] || [ "$round" -le 2 ] || continue
            measure "$name" "$name" "$round"
        done
    done
}

# shorts: what a short message takes, beside bare UDP.
shorts() {
    local round
    for ((round = 1; round <= 3 * HAWSER_BENCH_ROUNDS; round++)); do
        printf '%s, %s, short messages: round %d of %d\n' "$host" "$network" "$round" $((3 * HAWSER_BENCH_ROUNDS)) >&2
        measure candidate usnic "$round"
        measure udp udp "$round"
    done
}

# losses: goodput beside what is lost.
losses() {
    local round loss name rounds=$((HAWSER_BENCH_ROUNDS < 3 ? HAWSER_BENCH_ROUNDS : 3))
    for ((round = 1; round <= rounds; round++)); do
        printf '%s, %s, losses: round %d of %d\n' "$host" "$network" "$round" "$rounds" >&2
        for loss in 0 1 5; do
            bed_bad $loss 0 0 || die "the network cannot lose $loss %"
            for name in usnic tcp; do measure "$name" "$name" "$round" "loss=$loss"; done
        done
    done
}

# stalls: messages to a receiver that computes.
stalls() {
    local round loss name rounds=$((HAWSER_BENCH_ROUNDS < 3 ? HAWSER_BENCH_ROUNDS : 3))
    for ((round = 1; round <= rounds; round++)); do
        printf '%s, %s, stalls: round %d of %d\n' "$host" "$network" "$round" "$rounds" >&2
        for loss in 0 0.2; do
            bed_bad $loss 0 0 || die "the network cannot lose $loss %"
            bed_whole || die "$network cannot hand over segments"
            for name in usnic tcp; do measure "$name" "$name" "$round" "loss=$loss"; done
        done
    done
}

# protections: usnic whose packets are protected, beside itself.
protections() {
    local round
    for ((round = 1; round <= HAWSER_BENCH_ROUNDS; round++)); do
        printf '%s, %s, protection: round %d of %d\n' "$host" "$network" "$round" "$HAWSER_BENCH_ROUNDS" >&2
        protect=1 && measure candidate usnic "$round"
        protect=0 && measure plain usnic "$round"
    done
}

# one PART HOST NETWORK: as a process of its own, because a bed is one.
one() {
    local part=$1
    network=$3 device=lo protect= suffix=
    if [ "$network" != lo ]; then
        bed_enter one "$@"
        device=e0
    fi
    host_use "$2"
    results=target/bench/$host
    log=$results/usnic.log
    of=pingpong sizes=(-f 4 -t 0.06)
    [ -z "$HAWSER_BENCH_QUICK" ] || sizes=(-m 8 -M 2097152 -f 8 -t 0.03)
    case $part in
    short) sizes=(-l -f 4 -M 256 -t 0.06) suffix=+short ;;
    loss)
        sizes=(-b -m 1048576 -M 1048576 -t 1)
        # TCP takes a quarter of a minute for one look at these, where much is lost.
        [ -z "$HAWSER_BENCH_QUICK" ] || sizes=(-b -m 65536 -M 65536 -t 0.2)
        ;;
    stalls) of=computing sizes=(-n 15 100 300) ;;
    protection) sizes=(-f 8 -m 8 -M 2097152 -t 0.06) ;;
    esac
    if [ "$device" != lo ]; then
        { bed_make "$host" 2 && bed_mtu "${network#*-}"; } || die "there can be no $network"
        case $network in veth-*) bed_whole || die "$network cannot hand over segments" ;; esac
    fi
    case $part in
    speed) rounds ;;
    short) shorts ;;
    loss) losses ;;
    stalls) stalls ;;
    protection) protections ;;
    esac
}

if [ "${1-}" = one ]; then
    shift
    one "$@"
    exit
fi

choice=all networks=lo,veth-1500,veth-9000 against=tcp,rxd,udp count= parts=speed,short,loss,stalls,protection quick=
while [ $# -gt 0 ]; do
    case $1 in
    --host) choice=$2; shift ;;
    --networks) networks=$2; shift ;;
    --against) against=$2; shift ;;
    --rounds) count=$2; shift ;;
    --parts) parts=$2; shift ;;
    --quick) quick=yes ;;
    *) sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
    shift
done
[ -e target/mca/mca_btl_usnic.so ] || die "target/mca is not there: run make first"

hosts=$choice
if [ "$choice" = all ]; then
    hosts=debian12
    ! tests/hosts/debian13.sh run -- true >/dev/null 2>&1 || hosts="debian12 debian13"
fi
[ -n "$count" ] || count=$([ -n "$quick" ] && echo 3 || echo 5)
export HAWSER_BENCH_ROUNDS=$count HAWSER_BENCH_AGAINST=$against HAWSER_BENCH_QUICK=$quick
not_run=
if ! why=$(bed_able) && [ "$networks $parts" != "lo speed" ]; then
    not_run="not run: everything between hosts (${why#no network bed here: })"
fi

for host in $hosts; do
    host_use "$host" || die "no host $host"
    results=target/bench/$host
    mkdir -p "$results"
    for source in pingpong computing udp; do
        "${there[@]}" mpicc -O2 -Wall -Wextra -o "$root/$results/$source" "$root/bench/$source.c"
    done
    log_header env "${there[@]}" >"$results/usnic.log"
    for part in ${parts//,/ }; do
        case $part in
        loss) where=cut-1500 ;;
        stalls) where=veth-1500 ;;
        protection) where="veth-9000 veth-1500" ;;
        *) where=${networks//,/ } ;;
        esac
        for network in $where; do
            [ "$network" = lo ] || [ -z "$not_run" ] || continue
            "$0" one "$part" "$host" "$network" || die "$host: the $part over $network was not measured"
        done
    done
    python3 bench/report usnic "$results/usnic.log" | tee "$results/usnic.txt"
done
[ -z "$not_run" ] || echo "$not_run"
