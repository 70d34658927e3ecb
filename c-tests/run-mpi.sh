#!/usr/bin/env bash
# The MPI programs of c-tests/mpi over real providers, in all tag modes, in a real mpirun that takes
# hawser as its MTL.
#
#     c-tests/run-mpi.sh debian12|debian13 [WORD …]
#
# debian12 is this machine, debian13 the chroot that tests/hosts/debian13.sh keeps. Needs target/mca
# (`make stage`). With words, only the runs whose line holds all of them. Each program checks itself,
# has a watchdog, and must say `PASS`; its log lies in target/c-tests/HOST/mpi/logs, and that of a
# failed run is shown. The last line is `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 2

. c-tests/host.sh

host_use "${1-}" || { echo "usage: $0 debian12|debian13 [WORD …]" >&2; exit 2; }
shift
words=("$@")
plain=$own
layered='tcp;ofi_rxm'
work=target/c-tests/$host/mpi
mkdir -p "$work/logs" || exit 2

# run RANKS PROVIDER MODE "PROGRAM ARGUMENT…" [OPTION …]: one job, under the name hawser.
run() { named hawser "$@"; }

# named NAME RANKS PROVIDER MODE "PROGRAM ARGUMENT…" [OPTION …]
named() {
    local name=$1 ranks=$2 provider=$3 mode=$4 command=$5
    shift 5
    mpi_job "$name, $provider, $mode, $ranks ranks: $command $*" "$ranks" "$command" --mca pml cm --mca mtl "$name" \
        --mca mtl_ofi_provider_include "$provider" --mca "mtl_${name}_tag_mode" "$mode" "$@"
}

# again TIMES BAD RANKS PROVIDER MODE "PROGRAM ARGUMENT…": so many jobs, one row, of which so many may fail: what happens
# at one moment or another.
again() {
    local times=$1 most=$2 line="hawser, $4, $5, $3 ranks: $6, $1 times" begin=$SECONDS time verdict bad=0
    shift 2
    wanted "$line" || return 0
    for ((time = 1; time <= times; time++)); do
        verdict=$(words=() && run "$@")
        case $verdict in ok*) ;; *) bad=$((bad + 1)) && echo "$verdict" | sed 's/^not ok/    not ok/' ;; esac
    done
    if [ "$bad" -le "$most" ]; then
        ok "$line, $bad failed ($((SECONDS - begin)) s)"
    else
        not_ok "$line: $bad failed"
    fi
}

# crossing RANKS PROVIDER MODE "PROGRAM ARGUMENT…": a job of processes that meet later, and call each other at the same
# time. libfabric's TCP provider compares a call with the process behind its connection (remote_pid in
# xnet_process_connreq) before it has noted who that is: now and then it closes a connection in use, with what was
# sent on it, and says so in its log. A job in which it says that shows nothing of ours, and is run again.
crossing() {
    local line="hawser, $2, $3, $1 ranks: $4, calls cross" begin=$SECONDS said=$work/logs/crossing time verdict
    wanted "$line" || return 0
    for time in 1 2 3 4 5; do
        verdict=$(
            words=() failed=0
            run "$@" -x FI_LOG_LEVEL=info
            grep -av ^libfabric: "$log" >"$said"
            [ "$failed" = 0 ] || ! grep -aq "old connection exists, replacing" "$log"
        ) && break
    done
    case $verdict in
    ok*) ok "$line, job $time ($((SECONDS - begin)) s)" ;;
    *) not_ok "$line: ${verdict%%$'\n'*}" "$said" ;;
    esac
}

[ -e target/mca/libhawser.so ] || give_up "target/mca is there: make stage"
mpi_compile $(mpi_programs)

# Window memory of the user's own needs more than an MTL on 5.0 (c-tests/mpi/rma.c says what).
windows=rma
[ "$host" = debian12 ] || windows="rma allocate"

# The thread that drives `sockets` by default sleeps for milliseconds when ranks share processors.
own_calls=(--mca mtl_ofi_control_progress manual --mca mtl_ofi_data_progress manual)

# cell PROVIDER MODE: all programs with this provider and this tag mode.
cell() {
    local provider=$1 mode=$2 program
    few "$provider"
    for program in p2p datatypes persist probe truncate cancel tags comms "$windows" "flood $many" "threads 100"; do
        run 2 "$provider" "$mode" "$program" "${options[@]}"
    done
    for program in coll intercomm mixed "p2p small"; do run 4 "$provider" "$mode" "$program" "${options[@]}"; done
}

# corner PROVIDER MODE: what a provider and a tag mode can get wrong together: who a message of any
# source is from, the highest tag and context, what is probed, and acknowledgements of synchronous sends.
corner() {
    local provider=$1 mode=$2 program
    few "$provider"
    for program in "p2p small" tags; do run 2 "$provider" "$mode" "$program" "${options[@]}"; done
}

# few PROVIDER: its options, and how many messages are more than it stores: 2048 are, for ofi_rxm.
few() {
    options=() many=3000
    ! whole || many=10000
    # With thousands of unexpected messages `sockets` itself gets stuck, under the host's own MTL too.
    [ "$1" != sockets ] || { options=("${own_calls[@]}"); many=200; }
}

if whole; then
    for mode in auto ofi_tag_1 ofi_tag_2 ofi_tag_full; do
        for provider in "$plain" "$layered" sockets; do cell "$provider" $mode; done
    done
else
    # Each provider and each tag mode once with all programs, and the other pairs at their corners. Where
    # a provider can, as these do, auto is ofi_tag_full. The two hosts differ in which pair is whole.
    case $host in
    debian12) cells="auto:$plain ofi_tag_1:$layered ofi_tag_2:sockets" ;;
    *) cells="ofi_tag_2:$plain auto:$layered ofi_tag_1:sockets" ;;
    esac
    for provider in "$plain" "$layered" sockets; do
        for mode in auto ofi_tag_1 ofi_tag_2 ofi_tag_full; do
            case " $cells " in
            *" $mode:$provider "*) cell "$provider" $mode ;;
            *) corner "$provider" $mode ;;
            esac
        done
    done
fi
# extras PROVIDER: what no tag mode changes.
extras() {
    local provider=$1 order program
    run 2 "$provider" auto "bigmsg"
    for program in spawn "spawn ports"; do
        case $provider in "$plain") crossing 2 "$provider" auto "$program" ;; *) run 2 "$provider" auto "$program" ;; esac
    done
    run 4 "$provider" auto "tags"
    run 3 "$provider" auto "mixed 7"
    run 2 "$provider" auto "p2p" --mca mtl_ofi_av table
    run 2 "$provider" auto "p2p" --mca mtl_ofi_progress_event_cnt 1
    run 2 "$provider" auto "pvars hawser"
    for order in after before; do run 2 "$provider" auto "sampler mtl_hawser_ $order"; done
}
if whole; then
    for provider in "$plain" "$layered"; do extras "$provider"; done
else
    # Each provider once, on another host.
    case $host in debian12) extras "$plain" ;; *) extras "$layered" ;; esac
fi
for provider in "$plain" "$layered"; do
    run 4 "$provider" auto "flood 1000"
    # Only the layered one has room for so few.
    [ "$provider" = "$plain" ] && ! whole || run 2 "$provider" auto "full"
    [ "$host" = debian12 ] || run 2 "$provider" auto "sessions"
    # What is left behind is with libfabric when the endpoint is closed. libfabric 2.1 frees it twice if the peer has
    # closed before our last poll, and the host's own polls in MPI_Finalize may meet that, rarely: half of the jobs failed
    # while hawser polled after them.
    bad=0
    [ "$provider" != tcp ] || bad=2
    for how in keep free; do again 10 $bad 2 "$provider" auto "unmatched $how"; done
    # A thread level that is told late, or to a session only.
    for order in session second late; do
        [ "$host" = debian12 ] || run 2 "$provider" auto "sessions_threads $order"
    done
done
# As they do where nobody asks them to yield.
run 2 "$plain" auto "p2p" --mca mpi_yield_when_idle 0

# Scalable endpoints.
for options in "--mca mtl_ofi_num_ctxts 2" "--mca mtl_ofi_num_ctxts 4 --mca mtl_ofi_thread_grouping 1"; do
    read -ra options <<<"$options"
    options+=(--mca mtl_ofi_enable_sep 1 "${own_calls[@]}")
    for program in p2p comms coll "threads 100"; do run 2 sockets auto "$program" "${options[@]}"; done
    run 2 sockets ofi_tag_1 "threads 100" "${options[@]}"
done

# Under the other name: the file comes before the host's own, or the library before the host itself.
if [ "$host" = debian12 ]; then
    named ofi 2 "$plain" auto "p2p"
    named ofi 2 "$plain" auto "pvars ofi"
else
    named ofi 2 "$plain" auto "p2p" -x LD_PRELOAD="$root/target/mca/libhawser.so"
    named ofi 2 "$plain" auto "pvars ofi" -x LD_PRELOAD="$root/target/mca/libhawser.so"
fi

# One rank has hawser and the other the host's own MTL: they speak the same on the wire. Collectives
# only, because the host's own leaves part of a status of point-to-point messages unset.
beside="OMPI_MCA_mca_base_component_path=$root/target/mca:$stock"
[ "$host" = debian12 ] || beside="LD_PRELOAD=$root/target/mca/libhawser.so"
"${there[@]}" mpicc -std=gnu11 -O1 -Wall -Wextra -Werror -o "$work/who" c-tests/selection/who.c
pair() { # pair LOG PROGRAM…: rank 0 with hawser, rank 1 without
    local log=$1
    shift
    c-tests/patience.sh 180 "${there[@]}" mpirun --oversubscribe --mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include "$layered" \
        -n 2 sh -c '[ "$OMPI_COMM_WORLD_RANK" = 1 ] || export "$1"; shift; exec "$@"' sh "$beside" "$@" >"$log" 2>&1 </dev/null
}
line="hawser beside stock, $layered: coll"
if wanted "$line"; then
    log=$work/logs/beside
    # Who serves is asked first: two ranks of one kind would prove nothing.
    if pair "$log" "$root/$work/who" && grep -q '^rank 0 .*libhawser\.so' "$log" && grep '^rank 1 ' "$log" | grep -qv libhawser &&
        pair "$log" "$root/$work/coll" small && grep -qx "PASS coll" "$log"; then
        ok "$line"
    else
        not_ok "$line" "$log"
    fi
fi

sum
