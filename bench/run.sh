#!/usr/bin/env bash
# Compares hawser with the host's own OFI MTL: the ping-pong in pairs of runs, hawser and stock in
# turn, then the tables of bench/report. Losses are reported as plainly as wins.
#
#     bench/run.sh [--host debian12|debian13|all] [--pairs N] [--providers P[,P...]] [--quick]
#                  [--candidate hawser|stock]
#
# --host        the default is all: this host, and Debian 13 if its tree was built
# --pairs       pairs of runs for each host and provider, 5
# --providers   the default is net (tcp on Debian 13) and tcp;ofi_rxm
# --quick       few sizes, short samples, 3 pairs
# --candidate   what is compared with stock; stock against itself shows the noise

root=$(cd "$(dirname "$0")/.." && pwd -P)
. "$root/bench/host.sh"
. "$root/bench/header.sh"

choice=all pairs= providers= quick= candidate=hawser
while [ $# -gt 0 ]; do
    case $1 in
    --host) choice=$2; shift ;;
    --pairs) pairs=$2; shift ;;
    --providers) providers=$2; shift ;;
    --quick) quick=yes ;;
    --candidate) candidate=$2; shift ;;
    *) sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
    shift
done

if [ "$choice" != "$host" ]; then
    names=$(hosts_of "$choice")
    for name in $names; do
        on_host "$name" bench/run.sh --host "$name" --candidate "$candidate" \
            ${pairs:+--pairs "$pairs"} ${providers:+--providers "$providers"} ${quick:+--quick}
    done
    exit
fi

pingpong=("$results/pingpong" -f 4)
if [ "$quick" ]; then
    pingpong+=(-m 8 -M 2097152 -f 8 -c 11 -n 300)
    pairs=${pairs:-3}
fi
IFS=, read -r -a providers <<<"${providers:-$own_provider,tcp;ofi_rxm}"
pairs=${pairs:-5}
log=$results/pairs.log
output=$results/pingpong.out

# measure SIDE VARIANT PROVIDER PAIR: one run, appended to the log.
measure() {
    mpirun_command "$2" "$3" 2
    echo "run host=$host over=$3 round=$4 side=$1 variant=$2" \
        "load=$(cut -d' ' -f1 /proc/loadavg)" >>"$log"
    if ! timeout 300 "${command[@]}" "${pingpong[@]}" >"$output" 2>"$output.err"; then
        cat "$output" "$output.err" >&2
        die "this run failed: ${command[*]} ${pingpong[*]}"
    fi
    if [ "$2" = hawser ] && [ "$(grep -cF " object=$root/" "$output")" != 2 ]; then
        grep '^component' "$output" >&2
        die "this run did not load hawser on both ranks: ${command[*]}"
    fi
    cat "$output" >>"$log"
}

compile pingpong
log_header env >"$log"
for provider in "${providers[@]}"; do
    for ((pair = 1; pair <= pairs; pair++)); do
        printf '%s, %s: pair %d of %d\n' "$host" "$provider" "$pair" "$pairs" >&2
        measure candidate "$candidate" "$provider" "$pair"
        measure stock stock "$provider" "$pair"
    done
done

python3 "$root/bench/report" pairs "$log" | tee "$results/pairs.txt"
