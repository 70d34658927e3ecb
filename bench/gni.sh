#!/usr/bin/env bash
# Compares the libfabric provider gni with the host's own providers and with what the machine itself allows: in each round every
# one of them runs once, in turn, then the tables of bench/report. Losses are reported as plainly as wins.
#
#     bench/gni.sh [--host debian12|debian13|all] [--rounds N] [--parts P[,P...]] [--quick]
#
# --host      the default is all: this host, and Debian 13 if its tree was built
# --rounds    9; of all but `speed` a third
# --parts     speed, tagged messages within the node beside shm, sm2 where libfabric has it, and net (tcp on Debian 13), a
#             number that two cores hand each other in a line of the cache, and process_vm_readv; matching, 8 bytes beside
#             receives and messages that wait; memory of peers; idle, processor time of a program that sleeps with
#             FI_PROGRESS_AUTO; network, between two hosts of c-tests/net/bed.sh, beside the same tcp provider and bare UDP
#             (udp.c). speed,matching,memory,idle,network
# --quick     few sizes, 3 rounds
#
# The two processes of a run have a core each, if there are two. The network needs root, for namespaces and devices of its own;
# without it that is said, and left out.

root=$(cd "$(dirname "$0")/.." && pwd -P)
cd "$root" || exit 2
. c-tests/host.sh
. c-tests/net/bed.sh
. bench/header.sh
set -euo pipefail

die() {
    echo "gni.sh: $*" >&2
    exit 1
}

# measure OVER ROUND SIDE PROGRAM ARGUMENT…: one run on the node, appended to the log.
measure() {
    local over=$1 round=$2 side=$3 program=$4 variant=$3
    shift 4
    [ "$side" != gni ] || side=candidate
    began "$over" "$round" "$side" "$variant"
    timeout --kill-after=10 300 "${there[@]}" env "${provider[@]}" "$root/$results/$program" "$@" >"$results/said" 2>"$results/errors" </dev/null ||
        { cat "$results/said" "$results/errors" >&2; die "$host, $over: this run of $variant failed: $program $*"; }
    cat "$results/said" >>"$log"
}

began() { echo "run host=$host over=$1 round=$2 side=$3 variant=$4 load=$(cut -d' ' -f1 /proc/loadavg)" >>"$log"; }

# turns ROUND WORD…: the words, backwards in every second round.
turns() {
    if [ $(($1 % 2)) = 1 ]; then printf '%s\n' "${@:2}"; else printf '%s\n' "${@:2}" | tac; fi
}

speed() {
    local round side
    for ((round = 1; round <= rounds; round++)); do
        printf '%s, speed: round %d of %d\n' "$host" "$round" "$rounds" >&2
        for side in $(turns "$round" flag gni "${others[@]}" "$own" copy); do
            case $side in
            flag | copy) measure node "$round" "$side" limits "${time[@]}" "$side" ;;
            *) measure node "$round" "$side" fabric "${sizes[@]}" "$side" speed ;;
            esac
        done
    done
}

matching() {
    local round side kind number provider=("${provider[@]}" FI_SHM_RX_SIZE=16384) # with 131072 it crashes
    for ((round = 1; round <= few; round++)); do
        printf '%s, matching: round %d of %d\n' "$host" "$round" "$few" >&2
        for kind in posted unexpected; do
            for number in 1 100 10000 100000; do
                for side in $(turns "$round" gni "${others[@]}"); do
                    measure "$kind-$number" "$round" "$side" fabric "${time[@]}" "$side" "$kind" "$number"
                done
            done
        done
    done
}

memory() {
    local round side
    for ((round = 1; round <= few; round++)); do
        for side in gni "${others[@]}" "$own"; do measure node "$round" "$side" fabric "$side" memory 64; done
    done
}

idle() {
    local round side
    for ((round = 1; round <= few; round++)); do
        for side in gni "${others[@]}" "$own"; do measure node "$round" "$side" fabric "$side" idle 2; done
    done
}

# between HOST: in the bed, as a process of its own.
between() {
    local round side second pinned=()
    bed_enter between "$@"
    host_use "$1"
    settle
    { bed_make "$host" 2 && bed_whole; } || die "there can be no network"
    exec {second}<"/proc/${bed_pids[2]}/ns/net"
    # shellcheck disable=SC2016 # expanded there
    [ "$(nproc)" -lt 2 ] || pinned=(sh -c 'exec taskset -c "$OMPI_COMM_WORLD_RANK" "$@"' sh)
    for ((round = 1; round <= rounds; round++)); do
        printf '%s, network: round %d of %d\n' "$host" "$round" "$rounds" >&2
        for side in $(turns "$round" gni udp "$own"); do
            if [ "$side" = udp ]; then
                began veth-1500 "$round" udp udp
                bed_on 1 timeout --kill-after=10 300 mpirun --host node1,node2 -n 2 --mca mpi_yield_when_idle 0 --mca pml ob1 \
                    --mca btl tcp,self --mca btl_tcp_if_include m0 "${pinned[@]}" "$bed_root/$results/udp" -i e0 -l -m 16 \
                    -M 4096 -f 4 -n 100 -c 100 -t 0.1 >"$results/said" 2>"$results/errors" </dev/null
            else
                began veth-1500 "$round" "${side/gni/candidate}" "$side"
                bed_on 1 timeout --kill-after=10 300 env "${provider[@]}" FI_GNI_IFACE=e0 FI_TCP_IFACE=e0 \
                    "$bed_root/$results/fabric" -d "$second" "${sizes[@]}" -f 4 "$side" speed >"$results/said" 2>"$results/errors" </dev/null
            fi || { cat "$results/said" "$results/errors" >&2; die "$host: this run of $side between nodes failed"; }
            cat "$results/said" >>"$log"
            [ "$side" != udp ] || bed_sweep || true
        done
    done
}

network() {
    "$0" between "$host" || die "$host: the network was not measured"
}

# What follows from the host.
settle() {
    rounds=$HAWSER_BENCH_ROUNDS few=$(((HAWSER_BENCH_ROUNDS + 2) / 3))
    results=target/bench/$host/gni
    log=$results/log
    time=(-t 0.06) sizes=(-t 0.06)
    [ -z "$HAWSER_BENCH_QUICK" ] || sizes=(-t 0.04 -f 4)
    others=(shm)
    [ "$host" = debian12 ] || others=(shm sm2)
    provider=("FI_PROVIDER_PATH=$root/target/fi" IPATH_NO_BACKTRACE=1)
}

if [ "${1-}" = between ]; then
    between "${@:2}"
    exit
fi

hosts=all count= parts=speed,matching,memory,idle,network quick=
while [ $# -gt 0 ]; do
    case $1 in
    --host) hosts=$2; shift ;;
    --rounds) count=$2; shift ;;
    --parts) parts=$2; shift ;;
    --quick) quick=yes ;;
    *) sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
    shift
done
[ -e target/fi/libgni-fi.so ] || die "target/fi is not there: run make first"
if [ "$hosts" = all ]; then
    hosts=debian12
    ! tests/hosts/debian13.sh run -- true >/dev/null 2>&1 || hosts="debian12 debian13"
fi
[ -n "$count" ] || count=$([ -n "$quick" ] && echo 3 || echo 9)
export HAWSER_BENCH_ROUNDS=$count HAWSER_BENCH_QUICK=$quick
not_run=
case ,$parts, in
*,network,*)
    if ! why=$(bed_able); then
        not_run="not run: between nodes (${why#no network bed here: })"
        parts=$(sed 's/,network,/,/; s/^,//; s/,$//' <<<",$parts,")
    fi
    ;;
esac

for name in $hosts; do
    host_use "$name" || die "no host $name"
    settle
    mkdir -p "$results"
    for source in fabric limits; do
        "${there[@]}" gcc -O2 -Wall -Wextra "$root/bench/$source.c" -o "$root/$results/$source" -lfabric
    done
    "${there[@]}" mpicc -O2 -Wall -Wextra "$root/bench/udp.c" -o "$root/$results/udp"
    log_header env "${there[@]}" >"$log"
    for part in ${parts//,/ }; do
        case $part in
        speed | matching | memory | idle | network) "$part" ;;
        *) die "no part $part" ;;
        esac
    done
    python3 bench/report gni "$log" | tee "$results/gni.txt"
done
[ -z "$not_run" ] || echo "$not_run"
