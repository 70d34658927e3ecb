#!/usr/bin/env bash
# The MPI programs of c-tests/mpi over the libfabric provider `gni`, in a real mpirun, under hawser's OFI MTL and under the
# host's own; and what becomes of ranks whose peer dies.
#
#     c-tests/gni-mpi.sh debian12|debian13 [WORD …]
#
# debian12 is this machine, debian13 the chroot that tests/hosts/debian13.sh keeps. Needs target/mca and target/fi
# (`make stage`). With words, only the runs whose line holds all of them. Each program checks itself, has a watchdog, and
# must say `PASS`. The last line is `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 2

. c-tests/host.sh

host_use "${1-}" || { echo "usage: $0 debian12|debian13 [WORD …]" >&2; exit 2; }
shift
words=("$@")
work=target/c-tests/$host/gni-mpi
mkdir -p "$work/logs" || exit 2
[ -e target/fi/libgni-fi.so ] || give_up "target/fi is staged"
mpi_compile $(mpi_programs) killed
"${there[@]}" mpicc -std=gnu11 -O1 -Wall -Wextra -Werror -o "$work/who" c-tests/selection/who.c

# What runs behind it may not read the memory of other processes.
"${there[@]}" cc -std=gnu11 -O1 -Wall -Wextra -Wpedantic -Werror c-tests/smcuda/forbid.c -o "$work/forbid"
forbid=$root/$work/forbid

provider=(-x "FI_PROVIDER_PATH=$root/target/fi")
hawser=("${provider[@]}" --mca pml cm --mca mtl hawser --mca mtl_hawser_provider_include gni)

# run RANKS "PROGRAM ARGUMENT…" [OPTION …]: under hawser's MTL.
run() {
    local ranks=$1 command=$2
    shift 2
    mpi_job "gni, hawser, $ranks ranks: $command $*" "$ranks" "$command" "${hawser[@]}" "$@"
}

# alone LINE RANKS "PROGRAM ARGUMENT…" OPTION…: under the host's own, which nothing of ours is in the way of.
alone() {
    local line=$1 ranks=$2 begin=$SECONDS
    local -a command
    read -ra command <<<"$3"
    shift 3
    wanted "$line" || return 0
    log=$work/logs/$(tr -c 'a-z0-9\n' - <<<"$line")
    c-tests/patience.sh 180 "${there[@]}" mpirun --oversubscribe -n "$ranks" "${provider[@]}" "$@" "$root/$work/${command[0]}" \
        "${command[@]:1}" >"$log" 2>&1 </dev/null
    status=$?
    [ "$status" = 0 ] && says "^PASS ${command[0]}\$"
    check "$line ($((SECONDS - begin)) s)" $?
}

# stock RANKS "PROGRAM ARGUMENT…" [OPTION …]: its OFI MTL.
stock() {
    alone "gni, the host's own, $1 ranks: $2 ${*:3}" "$1" "$2" --mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include gni "${@:3}"
}

# stock_btl RANKS "PROGRAM ARGUMENT…" [OPTION …]: its OFI BTL, for messages and for windows.
stock_btl() {
    alone "gni, the host's own OFI BTL, $1 ranks: $2 ${*:3}" "$1" "$2" --mca pml ob1 --mca btl ofi,self --mca btl_ofi_mode 2 \
        --mca btl_ofi_provider_include gni --mca osc rdma "${@:3}"
}

few=3000
! whole || few=10000
for program in p2p datatypes persist probe truncate cancel tags comms bigmsg "flood $few" "threads 100" forks; do
    run 2 "$program"
done
# What is started later has the variables of the launcher, and on 5.0 not those that were named to it.
FI_PROVIDER_PATH=$root/target/fi run 2 spawn
# Window memory of the user's own needs more than an MTL on 5.0 (c-tests/mpi/rma.c says what).
if [ "$host" = debian12 ]; then run 2 rma; else run 2 "rma allocate"; fi
for program in coll intercomm mixed "p2p small" tags; do run 4 "$program"; done
for mode in ofi_tag_1 ofi_tag_2 ofi_tag_full; do run 2 "p2p small" --mca mtl_ofi_tag_mode $mode; done
run 2 p2p --mca mtl_ofi_data_progress auto
run 2 "p2p small" --mca mtl_ofi_av table
# Scalable endpoints: one context, and communicators spread over several.
run 2 p2p --mca mtl_ofi_enable_sep 1
several=(--mca mtl_ofi_enable_sep 1 --mca mtl_ofi_num_ctxts 4 --mca mtl_ofi_thread_grouping 1)
run 2 "threads 100" "${several[@]}"
run 4 "coll small" "${several[@]}"
run 2 probe "${several[@]}" --mca mtl_ofi_av table
[ "$host" = debian12 ] || run 2 sessions
# What waits in the MTL because the provider takes no more, and what nobody receives.
run 2 full
run 2 "unmatched keep"
run 3 "mixed 7"
if whole; then
    FI_PROVIDER_PATH=$root/target/fi run 4 "spawn ports"
    run 2 "unmatched free"
    for program in sizes "alltoall 2 20000" ibsend; do run 4 "$program"; done
    run 2 p2p --mca mpi_yield_when_idle 0
    run 40 "p2p small"
fi

# In pieces.
line="gni, hawser, 2 ranks: bigmsg, memory is closed"
if wanted "$line"; then
    log=$work/logs/closed
    c-tests/patience.sh 180 "${there[@]}" "$forbid" mpirun --oversubscribe -n 2 --mca mca_base_component_path "$root/target/mca:$stock" \
        "${quiet[@]}" "${hawser[@]}" "$root/$work/bigmsg" >"$log" 2>&1 </dev/null
    status=$?
    [ "$status" = 0 ] && says '^PASS bigmsg$'
    check "$line" $?
fi

# The host's own leaves part of a status of point-to-point messages unset.
stock 2 coll
stock 4 "coll small"
stock 2 "coll small" --mca mtl_ofi_enable_sep 1 --mca mtl_ofi_num_ctxts 4
stock_btl 2 "p2p small"
stock_btl 2 "rma allocate"
stock_btl 4 "coll small"
line="gni, the host's own: it is that"
if wanted "$line"; then
    log=$work/logs/who
    "${there[@]}" mpirun --oversubscribe -n 2 "${provider[@]}" --mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include gni \
        "$root/$work/who" >"$log" 2>&1 </dev/null
    says '^exchange: 64 messages, 0 wrong$' && says '^rank 0 .*pml cm, mtl ofi' && ! says libhawser
    check "$line" $?
fi

# killed RANKS MOMENT [OPTION …]: a job in which a rank dies; fills `log`, `status`, and `remaining`: what is left of it.
killed() {
    local ranks=$1 moment=$2 pid
    local -a by=()
    shift 2
    # What is read in one step is never seen in part.
    [ "$moment" != transfer ] || by=("$forbid")
    log=$work/logs/killed-$moment
    c-tests/patience.sh 60 "${there[@]}" ${by[@]+"${by[@]}"} mpirun --oversubscribe -n "$ranks" --mca mca_base_component_path "$root/target/mca:$stock" \
        "${quiet[@]}" "${hawser[@]}" "$@" "$root/$work/killed" "$moment" >"$log" 2>&1 </dev/null
    status=$?
    remaining=
    for pid in $(sed -nE 's/^rank [0-9]+ pid ([0-9]+)$/\1/p' "$log"); do
        c-tests/patience.sh 10 tail -f /dev/null --pid="$pid"
        case $(readlink "/proc/$pid/exe" 2>/dev/null) in */killed) remaining="$remaining $pid" ;; esac
    done
}

for moment in start idle transfer collective finalize; do
    line="gni, a rank killed ($moment): the job ends, and nothing of it stays"
    wanted "$line" || continue
    killed 3 $moment
    [ "$status" != 0 ] && [ "$status" != 124 ] && [ -z "$remaining" ] && [ "$(grep -cE '^rank [0-2] pid [0-9]+$' "$log")" = 3 ] &&
        ! says 'goes on with|watchdog|Segmentation|Aborted|panicked'
    check "$line${remaining:+: $remaining}" $?
done

# An mpirun that lets the survivor live: it is the provider that has to notice.
for moment in receive send silence; do
    line="gni, a rank killed ($moment), and the launcher says nothing: the other one hears of it"
    wanted "$line" || continue
    killed 2 $moment --enable-recovery
    [ "$status" != 124 ] && [ -z "$remaining" ] && ! says 'watchdog|Segmentation|Aborted|panicked' &&
        says '^rank 0 has (an error|a message that is right)$'
    check "$line${remaining:+: $remaining}" $?
done

sum
