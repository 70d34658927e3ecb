#!/usr/bin/env bash
# Compares the smcuda BTL with the host's own shared memory (vader, sm): in each round both run once, in turn, then
# the table of bench/report. Losses are reported as plainly as wins.
#
#     bench/smcuda.sh [--host debian12|debian13|all] [--rounds N] [--quick] [-- WORD…]
#
# --host      the default is all: this host, and Debian 13 if its tree was built
# --rounds    9
# --quick     few sizes, 3 rounds
# WORD…       more words for mpirun, for both: `--mca btl_smcuda_flags send` and the like
root=$(cd "$(dirname "$0")/.." && pwd -P)
cd "$root" || exit 2
. c-tests/host.sh
. bench/header.sh
set -euo pipefail

hosts=all rounds=9 sizes=(-t 0.3)
while [ $# -gt 0 ]; do
    case $1 in
    --host) hosts=$2; shift 2 ;;
    --rounds) rounds=$2; shift 2 ;;
    --quick) rounds=3 sizes=(-f 16 -c 5 -t 0.1); shift ;;
    --) shift; break ;;
    *) sed -n '2,/^root/{/^root/d;s/^# \{0,1\}//p}' "$0"; exit 2 ;;
    esac
done
more=("$@")
if [ "$hosts" = all ]; then
    hosts=debian12
    ! tests/hosts/debian13.sh able >/dev/null || hosts="debian12 debian13"
fi

for name in $hosts; do
    host_use "$name" || { echo "smcuda.sh: no host $name" >&2; exit 2; }
    other=vader
    [ "$name" = debian12 ] || other=sm
    results=target/bench/$name/smcuda
    mkdir -p "$results"
    "${there[@]}" mpicc -O2 -Ic-tests/mpi bench/pingpong.c -o "$results/pingpong"
    log=$results/log
    log_header env "${there[@]}" >"$log"
    yield=1 bind=none
    [ "$(nproc)" -lt 2 ] || yield=0 bind=core
    for ((round = 1; round <= rounds; round++)); do
        sides=(smcuda "$other")
        [ $((round % 2)) = 0 ] || sides=("$other" smcuda)
        for side in "${sides[@]}"; do
            as=$side
            [ "$side" = "$other" ] || as=candidate
            echo "run host=$name over=memory round=$round side=$as variant=$side load=$(cut -d' ' -f1 /proc/loadavg)" >>"$log"
            timeout --kill-after=10 600 "${there[@]}" mpirun -n 2 --oversubscribe --bind-to $bind --mca mpi_yield_when_idle $yield \
                --mca mca_base_component_path "$root/target/mca:$stock" "${quiet[@]}" --mca pml ob1 --mca btl "$side,self" \
                ${more[@]+"${more[@]}"} "$root/$results/pingpong" "${sizes[@]}" >>"$log"
        done
    done
    python3 bench/report pairs "$log" | tee "$results/smcuda.txt"
done
