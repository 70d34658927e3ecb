#!/usr/bin/env bash
# Device memory over the smcuda BTL, in a real mpirun on both hosts, beside the software stand-in for the driver
# (c-tests/cuda): it ends the process when the processor touches a device's memory, and its ledger tells what was not
# given back. Which way the data have gone is told by the counters.
#
#     c-tests/smcuda-device.sh debian12|debian13 [WORD …]
#
# debian12 is this machine, whose Open MPI 4.1 knows no devices: long messages in one piece are all that goes there.
# debian13 is the chroot that tests/hosts/debian13.sh keeps. Needs target/mca (`make stage`). With words, only the runs
# whose line holds all of them. Logs lie in target/c-tests/HOST/smcuda-device. The last line is `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 2

. c-tests/host.sh
. c-tests/cuda/build.sh

host_use "${1-}" || { echo "usage: $0 debian12|debian13 [WORD …]" >&2; exit 2; }
shift
words=("$@")
work=target/c-tests/$host/smcuda-device
log=$work/log
rm -rf "$work"
mkdir -p "$work/ledgers" || exit 2
unset "${!HAWSER_CUDA_@}" CUDA_VISIBLE_DEVICES

[ -e target/mca/libhawser.so ] || give_up "target/mca is there: make stage"
cuda_library "$work" || give_up "the stand-in compiles"
sources=(c-tests/smcuda/device.c)
[ "$host" != debian12 ] || sources+=(c-tests/accelerator/refused.c)
[ "$host" = debian12 ] || sources+=(c-tests/accelerator/{messages,collectives,reductions,windows}.c)
for source in "${sources[@]}"; do
    "${there[@]}" mpicc -std=gnu11 -O1 -Wall -Wextra -Werror "$source" -o "$work/$(basename "$source" .c)" -ldl >"$log" 2>&1 ||
        give_up "$(basename "$source") compiles"
done

[ "$host" != debian12 ] || cc -std=gnu11 -O1 -Wall -Wextra -Wpedantic -Werror c-tests/smcuda/forbid.c -o "$work/forbid" >"$log" 2>&1 ||
    give_up "forbid compiles"

modern() { [ "$host" = debian13 ]; }
devices=() by=()
! modern || devices=(--mca accelerator cuda)

# job RANKS OPTION… -- PROGRAM ARGUMENT…: a job with the stand-in, behind the words of `by`; fills `log` and `status`.
job() {
    local ranks=$1 options=()
    shift
    while [ "$1" != -- ]; do options+=("$1") && shift; done
    shift
    rm -f "$work/ledgers/"*
    c-tests/patience.sh 60 "${there[@]}" mpirun --oversubscribe -n "$ranks" --mca mca_base_component_path "$root/target/mca:$stock" \
        "${quiet[@]}" --mca pml ob1 --mca btl smcuda,self ${devices[@]+"${devices[@]}"} -x "LD_LIBRARY_PATH=$root/$work" \
        -x "HAWSER_CUDA_LEDGER=$root/$work/ledgers/rank" "${options[@]}" ${by[@]+"${by[@]}"} "$root/$work/$1" "${@:2}" >"$log.raw" 2>&1 </dev/null
    status=$?
    tr -d '\0' <"$log.raw" >"$log"
}

# counted NAME: what all processes together have counted.
counted() { awk -v name="$1" '$1 == "counter" && $2 == name { sum += $3 } END { print sum + 0 }' "$log"; }
# most NAME: the most that any has.
most() { awk -v name="$1" '$1 == "counter" && $2 == name && $3 > most { most = $3 } END { print most + 0 }' "$log"; }
# calls NAME: how often all processes together have called an entry of the driver.
calls() { cat "$work/ledgers/"* 2>/dev/null | awk -v name="$1" '$1 == "call" && index($2, name) == 1 { sum += $3 } END { print sum + 0 }'; }
# peak THING: the most of it that any process had at once.
peak() { cat "$work/ledgers/"* 2>/dev/null | awk -v name="$1" '$1 == "thing" && $2 == name && $6 > most { most = $6 } END { print most + 0 }'; }
# holds CONDITION…: each is true; what is not is said.
holds() {
    local condition
    for condition; do
        [ "$(eval echo "\$((${condition}))")" != 0 ] || { echo "not so: $condition, that is $(eval echo "\"$condition\"")" >>"$log"; return 1; }
    done
}

# run LINE RANKS "CONDITION;…" OPTION… -- PROGRAM ARGUMENT…: it passes, nothing is left in the driver, and the
# conditions hold.
run() {
    local line=$1 ranks=$2 begin=$SECONDS
    local -a conditions
    IFS=';' read -ra conditions <<<"$3"
    shift 3
    wanted "smcuda, devices: $line" || return 0
    log=$work/$(tr -c 'a-z0-9\n' - <<<"$line").log
    job "$ranks" "$@"
    [ "$status" != 0 ] || grep -qx 'PASS [a-z]*' "$log" || status="no PASS"
    if [ "$status" = 0 ] && [ "${ledgers:-$ranks}" != 0 ]; then cuda_ledger "$work/ledgers/rank" "${ledgers:-$ranks}" >>"$log" 2>&1 || status=ledger; fi
    if [ "$status" = 0 ]; then holds ${conditions[@]+"${conditions[@]}"} || status=condition; fi
    check "smcuda, devices: $line ($((SECONDS - begin)) s)" "$status"
}

strays='$(counted num_ipc_strays) == 0; $(counted num_corrupt) == 0'
ipc='$(counted num_ipc_gets) > 20; $(counted num_ipc_accepted) > 0; $(counted num_ipc_refused) == 0'
staged='$(counted num_ipc_gets) == 0; $(counted num_staged_gets) > 20; $(counted num_ipc_refused) > 0; $(calls cuIpcOpenMemHandle) < 9'

# Open MPI 4.1 sends no short messages from devices.
shortest=5000
! modern || shortest=1
longest=600000
! whole || longest=8388608

# --- who pays

ledgers=0 run "nobody uses CUDA" 2 "$strays; \$(counted num_ipc_requests) == 0; \$(ls $work/ledgers | wc -l) == 0" -- device none
run "CUDA is in use, and no buffer is a device's" 2 "$strays; \$(counted num_ipc_requests) == 0; \$(calls cuIpc) == 0; \$(calls cuStreamCreate) == 0; \$(calls cuMemHostRegister) == 0; \$(calls cuCtxPushCurrent) == 2" -- device lazy

# --- from the memory itself

run "all kinds of memory, both ways at once" 2 "$strays; $ipc; \$(counted num_staged_gets) > 0" -- device grid "$longest" "$shortest"
run "four processes" 4 "$strays; $ipc" -- device grid 70000 "$shortest"
run "8 MiB" 2 "$strays; $ipc" -- device grid 8388608 8000000
run "what a device does takes time" 2 "$strays; $ipc" -x HAWSER_CUDA_DELAY=300 -- device grid 70000 60000
run "one copy at a time" 2 "$strays; $ipc" --mca btl_smcuda_max_ipc_events 1 -- device grid 70000 60000
run "many allocations, of which four stay open" 2 "$strays; \$(counted num_ipc_evictions) > 500; \$(peak memory-opened) <= 6" --mca btl_smcuda_ipc_cache_entries 4 -- device many 300
run "an allocation that is made anew" 2 "$strays; \$(counted num_ipc_stale) > 10" -- device anew 30
run "virtual memory and pools, exported or not" 2 "$strays; \$(counted num_ipc_gets) >= 4; \$(counted num_staged_gets) >= 4" -- device kinds
! modern || run "nothing is copied in one step but what devices copy" 2 "$strays; \$(counted num_ipc_gets) > 10; \$(counted num_gets) == 0" --mca btl_smcuda_flags send -- device grid 70000 60000
run "contexts that are reset" 2 "$strays" -- device reset
run "contexts that end before MPI does" 2 "$strays" -- device ended
run "what the default stream is still at" 2 "$strays; \$(counted num_ipc_gets) >= 3" -- device unfinished
run "a machine with one device" 2 "$strays; $ipc" -x HAWSER_CUDA_DEVICES=1 -- device grid 70000 "$shortest"
run "contexts that are reset, of one device" 2 "$strays" -x HAWSER_CUDA_DEVICES=1 -- device reset
! modern || run "data with gaps" 2 "$strays" -- device types
run "one side begins late" 2 "$strays; \$(counted num_ipc_not_ready) > 0" -- device later

# --- by way of host memory

run "refused by the user" 2 "$strays; $staged" --mca btl_smcuda_use_cuda_ipc 0 -- device grid "$longest" "$shortest"
run "refused for one device" 2 "$strays; \$(counted num_ipc_refused) > 0" --mca btl_smcuda_use_cuda_ipc_same_gpu 0 -- device grid 70000 60000
run "refused by the driver: MIG" 2 "$strays; $staged" -x HAWSER_CUDA_MIG=1 -- device grid 70000 60000
run "refused by the driver: containers" 2 "$strays; $staged" -x HAWSER_CUDA_NAMESPACE=rank -- device grid 70000 60000
run "devices without access to each other" 2 "$strays; \$(counted num_staged_gets) > 0" -x HAWSER_CUDA_PEERS=none -- device grid 70000 60000
run "8 MiB by way of host memory" 2 "$strays; $staged" --mca btl_smcuda_use_cuda_ipc 0 -- device grid 8388608 8000000
run "memory cannot be pinned" 2 "$strays; \$(counted num_ipc_gets) == 0" --mca btl_smcuda_use_cuda_ipc 0 -x HAWSER_CUDA_FAULTS=cuMemHostRegister:*:801 -- device grid 600000 500000
run "four processes by way of host memory" 4 "$strays; \$(counted num_ipc_gets) == 0" --mca btl_smcuda_use_cuda_ipc 0 -- device grid 70000 60000

# --- what the host does besides messages

if modern; then
    run "messages of every way, CUDA begun after MPI" 2 "" -- messages late 65537
    run "messages of every way, CUDA begun before MPI" 2 "" -- messages early 300001
    run "collectives and datatypes" 3 "" -- collectives 20000
    run "reductions" 3 "" -- reductions 5000
    run "windows of host memory beside devices" 2 "" -- windows hmp hmp
fi

# --- what cannot be

# says_not WORD…: none of these is said.
says_not() { ! says "$(IFS='|' && echo "$*")"; }
if ! modern; then
    for what in short strided; do
        line="what Open MPI 4.1 cannot send from a device is refused: $what"
        wanted "smcuda, devices: $line" || continue
        log=$work/refused-$what.log
        job 2 -- device "$what"
        [ "$status" != 0 ] && [ "$status" != 124 ] && says 'lies in the memory of a CUDA device, of which this Open MPI 4.1 does not know' &&
            says_not Segmentation 'signal 11' received 'sent: 0' PASS watchdog
        check "smcuda, devices: $line" $?
    done
    # What is said holds: without copies in one step no message goes from a device.
    for way in "the user" "the system"; do
        line="a long message is refused where $way does not want copies in one step"
        wanted "smcuda, devices: $line" || continue
        log=$work/refused-$(tr -c 'a-z0-9\n' - <<<"$way").log
        case $way in
        "the user") job 2 --mca btl_smcuda_flags send -- refused late long-send ;;
        *) by=("$root/$work/forbid") && job 2 -- refused late long-send; by=() ;;
        esac
        [ "$status" != 0 ] && [ "$status" != 124 ] && says 'and nothing can be sent from it. None goes from one here' &&
            says_not Segmentation 'signal 11' PASS watchdog
        check "smcuda, devices: $line" $?
    done

    # The host's own copies are looked at: the job ends with one line about it, the host says which rank has ended it, and
    # nobody dies of a signal.
    # refused LINE OPTION… -- PROGRAM ARGUMENT…
    refused() {
        local line="smcuda, devices: refused: $1"
        shift
        wanted "$line" || return 0
        log=$work/$(tr -c 'a-z0-9\n' - <<<"$line").log
        retold job 2 "$@"
        case $status in 0 | 124 | 13?) status="$status, not refused" ;; *) status=0 ;; esac
        [ "$(grep -ac 'lies in the memory of a CUDA device, of which this Open MPI 4.1 does not know' "$log")" = 1 ] || status="not one line"
        says 'MPI_ABORT was invoked on rank [01]' || status="the host has not ended it"
        says_not 'ignal' Segmentation 'core dumped' watchdog panicked '^PASS' || status=signal
        check "$line" "$status"
    }
    looked=(--mca op_hawser_copy_hook refuse)
    for what in send receive unexpected bsend self derived-send derived-receive bcast copy allreduce reduce-local own; do
        refused "$what" -- refused early "$what"
    done
    for what in window attach put get-long fetch; do
        refused "$what" --mca osc sm,pt2pt -- refused early "$what"
    done
    refused "a long message without copies in one step" --mca btl_smcuda_flags send -- refused early long-send
    refused "the driver fails in the middle of a copy" "${looked[@]}" -x HAWSER_CUDA_FAULTS=cuMemcpyAsync:9:700 -- device grid 70000 60000
    refused "the driver fails in the middle of a copy by way of host memory" "${looked[@]}" --mca btl_smcuda_use_cuda_ipc 0 -x HAWSER_CUDA_FAULTS=cuMemcpyAsync:9:700 -- device grid 600000 500000
    run "what devices copy is not refused" 2 "$strays; $ipc" "${looked[@]}" -- device grid "$longest" "$shortest"
    run "what devices copy by way of host memory is not refused" 2 "$strays; $staged" "${looked[@]}" --mca btl_smcuda_use_cuda_ipc 0 -- device grid 70000 60000
fi

# The other hears of it, in either of its ways, and nothing of what is under way comes afterwards.
for way in ipc staged; do
    line="a rank is killed whose memory is being copied ($way)"
    wanted "smcuda, devices: $line" || continue
    log=$work/killed-$way.log
    options=(-x HAWSER_CUDA_BANDWIDTH=100)
    [ $way = ipc ] || options+=(--mca btl_smcuda_use_cuda_ipc 0)
    job 2 "${options[@]}" -- device killed
    [ "$status" != 0 ] && [ "$status" != 124 ] && says '^rank 1 pid [0-9]+$' && says_not Segmentation 'signal 11' PASS watchdog 'goes on' panicked
    check "smcuda, devices: $line" $?
done
line="a rank is killed before a copy of its memory has begun"
if wanted "smcuda, devices: $line"; then
    log=$work/killed-before.log
    job 2 -- device stopped
    [ "$status" != 0 ] && [ "$status" != 124 ] && says '^rank 1 pid [0-9]+$' && says_not Segmentation 'signal 11' PASS watchdog 'goes on' panicked
    check "smcuda, devices: $line" $?
fi

sum
