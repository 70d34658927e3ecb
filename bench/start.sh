#!/usr/bin/env bash
# How long a job takes that only begins, meets and ends, over the usnic BTL and over TCP in turn:
# mpirun and all. Prints, for each number of ranks, the median and the least of each in milliseconds,
# and the median of the rounds' ratios.
#
#     bench/start.sh [--host debian12|debian13|all] [--rounds N] [--ranks N[,N...]]
#
# --host        the default is all: this host, and Debian 13 if its tree was built
# --rounds      9
# --ranks       1,2
root=$(cd "$(dirname "$0")/.." && pwd -P)
cd "$root" || exit 2
. c-tests/host.sh
. bench/header.sh
set -euo pipefail

choice=all rounds=9 ranks=1,2
while [ $# -gt 0 ]; do
    case $1 in
    --host) choice=$2; shift ;;
    --rounds) rounds=$2; shift ;;
    --ranks) ranks=$2; shift ;;
    *) sed -n '2,/^root/s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
    shift
done
[ -e target/mca/mca_btl_usnic.so ] || { echo "start.sh: target/mca is not there: run make first" >&2; exit 1; }
hosts=$choice
if [ "$choice" = all ]; then
    hosts=debian12
    ! tests/hosts/debian13.sh run -- true >/dev/null 2>&1 || hosts="debian12 debian13"
fi

for host in $hosts; do
    host_use "$host" || { echo "start.sh: no host $host" >&2; exit 2; }
    results=target/bench/$host
    mkdir -p "$results"
    "${there[@]}" mpicc -O2 -Wall -Wextra -o "$root/$results/start" "$root/bench/start.c"
    log_header env "${there[@]}" >"$results/start.log"
    # Timed there, so that the way to the host does not count.
    # shellcheck disable=SC2016 # expanded there
    "${there[@]}" bash -c '
        set -eu
        host=$1 rounds=$2 ranks=$3 path=$4 program=$5
        shift 5
        usnic=(--mca btl usnic,self --mca mca_base_component_path "$path" "$@")
        tcp=(--mca btl tcp,self --mca btl_tcp_if_include lo)
        for count in ${ranks//,/ }; do
            for round in $(seq "$rounds"); do
                for side in usnic tcp; do
                    declare -n words=$side
                    begin=${EPOCHREALTIME/./}
                    timeout 60 mpirun --oversubscribe --bind-to none -n "$count" --mca pml ob1 "${words[@]}" "$program" </dev/null
                    echo "start host=$host ranks=$count side=$side round=$round us=$((${EPOCHREALTIME/./} - begin))"
                done
            done
        done' start "$host" "$rounds" "$ranks" "$root/target/mca:$stock" "$root/$results/start" ${quiet[@]+"${quiet[@]}"} >>"$results/start.log"
    python3 bench/report start "$results/start.log" | tee "$results/start.txt"
done
