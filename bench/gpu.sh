#!/usr/bin/env bash
# Messages between two processes that share a CUDA device, from its memory and from the host's: over smcuda, over smcuda
# without CUDA IPC, and over the host's own shared memory, by turns. What is shown is the median of the rounds.
#
#     bench/gpu.sh [--rounds N] [--seconds S]
#
# --rounds    5
# --seconds   about how long a figure takes in a round, 0.3
#
# It runs in the Open MPI that is on PATH, 4.1 or 5.0, and needs target/mca (`make stage`) and NVIDIA's driver.
# HAWSER_PROGRAMS names a folder with the program, compiled for this Open MPI as `bench-device`; otherwise mpicc does.
root=$(cd "$(dirname "$0")/.." && pwd -P)
cd "$root" || exit 2
. c-tests/host.sh
set -euo pipefail

rounds=5 seconds=0.3
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=$2; shift 2 ;;
    --seconds) seconds=$2; shift 2 ;;
    *) sed -n '2,/^root/{/^root/d;s/^# \{0,1\}//p}' "$0"; exit 2 ;;
    esac
done
host_use here || { echo "gpu.sh: there is no Open MPI 4.1 or 5.0 on PATH" >&2; exit 2; }
results=target/bench/$host/gpu
mkdir -p "$results"
if [ -n "${HAWSER_PROGRAMS:-}" ]; then
    cp "$HAWSER_PROGRAMS/bench-device" "$results/device"
else
    mpicc -std=gnu11 -O2 bench/device.c -o "$results/device" -ldl
fi

case $host in
debian12)
    own=vader with=(--mca op_hawser_copy_hook 1) without=(--mca op_hawser_copy_hook 0)
    ;;
debian13)
    own=sm with=(--mca accelerator cuda) without=(--mca accelerator null)
    ;;
esac
# measure NAME device|host OPTION…
measure() {
    local name=$1 memory=$2
    shift 2
    echo "run $name"
    timeout --kill-after=10 300 mpirun -n 2 --oversubscribe --bind-to core --mca mpi_yield_when_idle 0 \
        --mca mca_base_component_path "$root/target/mca:$stock" "${quiet[@]}" --mca pml ob1 "$@" "$root/$results/device" "$memory" "$seconds"
}
for ((round = 1; round <= rounds; round++)); do
    measure device-smcuda device --mca btl smcuda,self "${with[@]}"
    measure device-smcuda-by-host device --mca btl smcuda,self --mca btl_smcuda_use_cuda_ipc 0 "${with[@]}"
    measure "device-$own" device --mca btl "$own,self" "${with[@]}"
    measure "host-$own" host --mca btl "$own,self" "${with[@]}"
    measure "host-$own-without" host --mca btl "$own,self" "${without[@]}"
done >"$results/log"
awk '
    $1 == "run" { run = $2; if (!(run in known)) { known[run] = 1; runs[++count] = run } }
    $1 == "latency" || $1 == "bandwidth" {
        split($2, size, "="); split($3, value, "=")
        figure = $1 " " size[2]
        if (!(figure in seen)) { seen[figure] = 1; figures[++rows] = figure }
        got[run, figure] = got[run, figure] " " value[2]
    }
    function median(text, values, n, i, j, t) {
        n = split(text, values, " ")
        for (i = 2; i <= n; i++) for (j = i; j > 1 && values[j] + 0 < values[j - 1] + 0; j--) { t = values[j]; values[j] = values[j - 1]; values[j - 1] = t }
        return n ? values[int((n + 1) / 2)] : "-"
    }
    END {
        line = "| us or MB/s"; for (i = 1; i <= count; i++) line = line " | " runs[i]; print line " |"
        line = "|---"; for (i = 1; i <= count; i++) line = line "|---"; print line "|"
        for (r = 1; r <= rows; r++) { line = "| " figures[r]; for (i = 1; i <= count; i++) line = line " | " median(got[runs[i], figures[r]]); print line " |" }
    }' "$results/log"
