#!/usr/bin/env bash
# Buffers in the memory of real CUDA devices, beside NVIDIA's driver: what c-tests/accelerator.sh and
# c-tests/smcuda-device.sh try over the software stand-in, where it needs nothing of the stand-in's own, and what only a
# device does. One device is enough.
#
#     c-tests/gpu.sh [WORD …]
#
# It runs in the Open MPI that is on PATH, 4.1 or 5.0, and needs target/mca (`make stage`). HAWSER_PROGRAMS names a folder
# that holds the programs, compiled for this Open MPI; otherwise mpicc compiles them. With words, only the runs whose line
# holds all of them. Logs lie in target/c-tests/here/gpu; that of a failed run is shown. The last line is
# `N passed, N failed`; without a device it fails.
set -u
cd "$(dirname "$0")/.." || exit 2

. c-tests/host.sh

host_use here || { echo "$0: there is no Open MPI 4.1 or 5.0 on PATH" >&2; exit 2; }
words=("$@")
work=target/c-tests/here/gpu
log=$work/log
rm -rf "$work"
mkdir -p "$work" || exit 2

[ -e target/mca/libhawser.so ] || give_up "target/mca is staged"
for source in c-tests/accelerator/*.c c-tests/smcuda/device.c; do
    name=$(basename "$source" .c)
    if [ -n "${HAWSER_PROGRAMS:-}" ]; then
        cp "$HAWSER_PROGRAMS/$name" "$work/$name" || give_up "$name is there"
    else
        mpicc -std=gnu11 -O1 -Wall -Wextra -Werror "$source" -o "$work/$name" -ldl >"$log" 2>&1 || give_up "$name.c compiles"
    fi
done

modern() { [ "$host" = debian13 ]; }
cuda=(--mca op_hawser_copy_hook 1) memory=vader
! modern || cuda=(--mca accelerator cuda) memory=sm
ob1=(--mca pml ob1)
sm=("${ob1[@]}" --mca btl "$memory,self")
tcp=("${ob1[@]}" --mca btl "tcp,self" --mca btl_tcp_if_include lo)
usnic=("${ob1[@]}" --mca btl "usnic,self" --mca btl_usnic_if_include lo)
smcuda=("${ob1[@]}" --mca btl "smcuda,self")
mtl=(--mca pml cm --mca mtl hawser --mca mtl_hawser_provider_include tcp)

# job RANKS OPTION… -- PROGRAM ARGUMENT…: fills `log` and `status`.
job() {
    local ranks=$1 options=()
    shift
    while [ "$1" != -- ]; do options+=("$1") && shift; done
    shift
    c-tests/patience.sh 120 mpirun --oversubscribe -n "$ranks" --mca mca_base_component_path "$root/target/mca:$stock" \
        "${quiet[@]}" "${options[@]}" "$root/$work/$1" "${@:2}" >"$log.raw" 2>&1 </dev/null
    status=$?
    tr -d '\0' <"$log.raw" >"$log"
    rm -f "$log.raw"
}

# counted NAME: what all processes together have counted.
counted() { awk -v name="$1" '$1 == "counter" && $2 == name { sum += $3 } END { print sum + 0 }' "$log"; }
# answered NUMBER: how many processes have said so of MPIX_Query_cuda_support.
answered() { grep -cx "support $1" "$log"; }
# holds CONDITION…: each is true; what is not is said.
holds() {
    local condition
    for condition; do
        [ "$(eval echo "\$((${condition}))")" != 0 ] || { echo "not so: $condition, that is $(eval echo "\"$condition\"")" >>"$log"; return 1; }
    done
}

# run LINE RANKS "CONDITION;…" OPTION… -- PROGRAM ARGUMENT…: it passes, and the conditions hold.
run() {
    local line=$1 ranks=$2 begin=$SECONDS
    local -a conditions
    IFS=';' read -ra conditions <<<"$3"
    shift 3
    wanted "$line" || return 0
    log=$work/$(tr -c 'a-z0-9\n' - <<<"$line").log
    job "$ranks" "$@"
    [ "$status" != 0 ] || grep -qx 'PASS [a-z]*' "$log" || status="no PASS"
    if [ "$status" = 0 ]; then holds ${conditions[@]+"${conditions[@]}"} || status=condition; fi
    check "$line ($((SECONDS - begin)) s)" "$status"
}

# ends LINE RANKS PATTERN OPTION… -- PROGRAM ARGUMENT…: it does not pass, says this, and nobody dies of a signal of the
# processor's.
ends() {
    local line=$1 ranks=$2 pattern=$3
    shift 3
    wanted "$line" || return 0
    log=$work/$(tr -c 'a-z0-9\n' - <<<"$line").log
    retold job "$ranks" "$@"
    case $status in 0 | 124) status="$status, not ended" ;; *) status=0 ;; esac
    says "$pattern" || status="not said"
    ! says 'Segmentation|ignal 11|core dumped|watchdog|panicked|^PASS|goes on' || status=signal
    check "$line" "$status"
}

# --- the device

run "there is a device" 1 "" -- slots initialised
[ "$failed" = 0 ] || give_up "NVIDIA's driver is here, and a device"
log=

# --- messages of every way, collectives, reductions

for column in sm tcp usnic smcuda mtl; do
    modern || [ $column != mtl ] || continue
    declare -n way=$column
    name=$column
    [ $column != sm ] || name=$memory
    run "$name: messages, CUDA begun after MPI" 2 "" "${cuda[@]}" "${way[@]}" -- messages late 1048576
    run "$name: messages, CUDA begun before MPI" 2 "" "${cuda[@]}" "${way[@]}" -- messages early 300001
    run "$name: contexts that end before MPI does" 2 "" "${cuda[@]}" "${way[@]}" -- reset
    run "$name: collectives and datatypes" 3 "" "${cuda[@]}" "${way[@]}" -- collectives 5000
    run "$name: kernels before messages and after them" 2 "" "${cuda[@]}" "${way[@]}" -- kernels 67108864
    run "$name: many threads" 2 "" "${cuda[@]}" "${way[@]}" -- threads
    # What has no shared memory is a stream of bytes to the rest.
    case $column in tcp | mtl) continue ;; esac
    run "$name: reductions" 3 "" "${cuda[@]}" "${way[@]}" -- reductions 500
    # Each element is a copy of the driver's: few more than a fragment holds.
    run "$name: elements that a message is cut in" 2 "" "${cuda[@]}" "${way[@]}" -- elements 20000
    for operation in messages collectives reductions windows; do
        [ $operation != windows ] || modern || continue
        run "$name: grid of $operation" 2 "" "${cuda[@]}" "${way[@]}" -- grid "$operation" 2998
    done
    modern || continue
    run "$name: one-sided operations" 2 "" "${cuda[@]}" "${way[@]}" -- windows all dddhoadu
    run "$name: windows of other memory" 2 "" "${cuda[@]}" "${way[@]}" -- windows others hdua
    run "$name: a window from before CUDA" 2 "" "${cuda[@]}" "${way[@]}" -- windows early -
done
run "$memory: other threads unmap memory from before MPI until after it" 2 "" "${cuda[@]}" "${sm[@]}" -- unmapping
run "$memory: an operation that Fortran has made" 2 "" "${cuda[@]}" "${sm[@]}" -- refused early fortran

# Where Python has what it takes, for this Open MPI.
if python3 -c 'import cupy, mpi4py' 2>/dev/null; then
    ln -sf "$root/c-tests/accelerator/arrays.py" "$work/arrays.py"
    run "$memory: arrays of cupy" 2 "" "${cuda[@]}" "${sm[@]}" python3 -- arrays.py
    run "smcuda: arrays of cupy" 2 "" "${cuda[@]}" "${smcuda[@]}" python3 -- arrays.py
fi

# --- which way the data go

strays='$(counted num_ipc_strays) == 0; $(counted num_corrupt) == 0'
ipc='$(counted num_ipc_gets) > 20; $(counted num_ipc_accepted) > 0; $(counted num_ipc_refused) == 0'
staged='$(counted num_ipc_gets) == 0; $(counted num_staged_gets) > 20; $(counted num_ipc_refused) > 0'
# Open MPI 4.1 sends no short messages from devices without the hook of copies.
shortest=5000 devices=()
! modern || shortest=1 devices=(--mca accelerator cuda)
here=("${devices[@]}" "${smcuda[@]}")
run "smcuda: nobody uses CUDA" 2 "$strays; \$(counted num_ipc_requests) == 0" "${here[@]}" -- device none
run "smcuda: CUDA is in use, and no buffer is a device's" 2 "$strays; \$(counted num_ipc_requests) == 0" "${here[@]}" -- device lazy
run "smcuda: all kinds of memory, both ways at once" 2 "$strays; $ipc; \$(counted num_staged_gets) > 0" "${here[@]}" -- device grid 8388608 "$shortest"
run "smcuda: four processes" 4 "$strays; $ipc" "${here[@]}" -- device grid 70000 "$shortest"
run "smcuda: one copy at a time" 2 "$strays; \$(counted num_ipc_gets) > 10" "${here[@]}" --mca btl_smcuda_max_ipc_events 1 -- device grid 70000 60000
run "smcuda: many allocations" 2 "$strays; \$(counted num_ipc_evictions) == 0; \$(counted num_ipc_gets) >= 590" "${here[@]}" -- device many 300
run "smcuda: many allocations, of which four stay open" 2 "$strays; \$(counted num_ipc_evictions) > 500" "${here[@]}" --mca btl_smcuda_ipc_cache_entries 4 -- device many 300
run "smcuda: an allocation that is made anew" 2 "$strays; \$(counted num_ipc_stale) > 10" "${here[@]}" -- device anew 30
run "smcuda: virtual memory and pools, exported or not" 2 "$strays; \$(counted num_ipc_gets) >= 4; \$(counted num_staged_gets) >= 4" "${here[@]}" -- device kinds
run "smcuda: contexts that are reset" 2 "$strays" "${here[@]}" -- device reset
run "smcuda: contexts that end before MPI does" 2 "$strays" "${here[@]}" -- device ended
run "smcuda: what the default stream is still at" 2 "$strays; \$(counted num_ipc_gets) >= 3" "${here[@]}" -- device unfinished
! modern || run "smcuda: data with gaps" 2 "$strays" "${here[@]}" -- device types
run "smcuda: one side begins late" 2 "$strays; \$(counted num_ipc_not_ready) > 0" "${here[@]}" -- device later
run "smcuda: by way of host memory" 2 "$strays; $staged" "${here[@]}" --mca btl_smcuda_use_cuda_ipc 0 -- device grid 8388608 "$shortest"
run "smcuda: by way of host memory, four processes" 4 "$strays; \$(counted num_ipc_gets) == 0" "${here[@]}" --mca btl_smcuda_use_cuda_ipc 0 -- device grid 70000 60000
run "smcuda: kernels, by way of host memory" 2 "" "${cuda[@]}" "${smcuda[@]}" --mca btl_smcuda_use_cuda_ipc 0 -- kernels 67108864
for how in ipc staged; do
    options=("${here[@]}")
    [ $how = ipc ] || options+=(--mca btl_smcuda_use_cuda_ipc 0)
    ends "smcuda: a rank is killed whose memory is being copied ($how)" 2 '^rank 1 pid [0-9]+$' "${options[@]}" -- device killed
    ends "smcuda: a rank is killed before a copy of its memory has begun ($how)" 2 '^rank 1 pid [0-9]+$' "${options[@]}" -- device stopped
done

# --- what is chosen and what is refused

if modern; then
    run "the accelerator is offered where there is a driver" 1 "\$(answered 1) == 1" -- support
    run "and not where the user does not want it" 1 "\$(answered 0) == 1" --mca accelerator null -- support initialised
else
    for what in send receive long-send long-receive bsend derived-send bcast allreduce own window put; do
        ends "refused, vader: $what" 2 'lies in the memory of a CUDA device, of which this Open MPI 4.1 does not know' "${sm[@]}" -- refused early "$what"
    done
    ends "refused, CUDA begun after MPI: receive" 2 'lies in the memory of a CUDA device' "${sm[@]}" --mca op_hawser_copy_hook refuse -- refused late receive
    for what in short strided; do
        ends "refused, smcuda: $what" 2 'lies in the memory of a CUDA device' "${smcuda[@]}" -- device "$what"
    done
    run "not refused: host memory" 2 "" "${sm[@]}" -- refused early host
    run "not refused: managed memory" 2 "" "${sm[@]}" -- refused early managed
fi

sum
