#!/usr/bin/env bash
# The MPI programs of c-tests/mpi over the verbs BTL, in a real mpirun, with `--mca btl verbs,self`, over the software
# stand-in for libibverbs and librdmacm (c-tests/verbs), as RoCE and as iWARP; and what happens when ranks die, when the
# credits of a receiver that computes are used up, and when there is nothing to use.
#
#     c-tests/verbs.sh debian12|debian13 [WORD …]
#
# debian12 is this machine, debian13 the chroot that tests/hosts/debian13.sh keeps. Needs target/mca (`make stage`). With
# words, only the runs whose line holds all of them. Each program checks itself, has a watchdog, and must say `PASS`;
# afterwards nothing may be left in the ledgers of the stand-in. The last line is `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 2

. c-tests/host.sh
. c-tests/verbs/build.sh

host_use "${1-}" || { echo "usage: $0 debian12|debian13 [WORD …]" >&2; exit 2; }
shift
words=("$@")
work=target/c-tests/$host/verbs
log=$work/log
rm -rf "$work/ledgers"
mkdir -p "$work/logs" "$work/lib" "$work/ledgers" || exit 2
unset "${!HAWSER_VERBS_@}"

# A device at an address of the loopback interface is used where that is named.
loopback=(--mca btl_verbs_ipaddr_include 127.0.0.0/8)

# over ROCE_OR_IWARP: fills `device`, what a job needs to have such a device; of ONE+ANOTHER, what it needs to have both; of
# KIND:2, what it needs to have one with two ports; of KIND6, at an address of IPv6.
over() {
    local devices=$1_0=127.0.0.1/$1
    case $1 in
    *6) devices=six=::1/${1%6} ;;
    *+*) devices=first=10.97.1.1/${1%+*},second=10.97.2.1/${1#*+} ;;
    *:2) devices=both=10.97.1.1+10.97.2.1/${1%:2} ;;
    esac
    jobs=$((${jobs-0} + 1))
    ledger=$work/ledgers/$jobs
    device=(-x "LD_LIBRARY_PATH=$root/$work/lib" -x "HAWSER_VERBS_DEVICES=$devices" -x "HAWSER_VERBS_LEDGER=$root/$ledger")
}

# brief: without the longest runs, which the second host has in the whole matrix only: what it has otherwise is above the BTL.
brief() { [ "$host" != debian12 ] && ! whole; }

# buffered LINE: in no ledger of the job has a message met a receiver without a buffer, or a completion queue run over: credits and
# the sizes of queues see to that, whatever would come after it.
buffered() {
    awk '$1 == "tally" && ($2 == "receiver-not-ready" || $2 == "completion-queue-overruns") { seen++; if ($3 > 0) { print FILENAME ": " $0; bad = 1 } }
        END { exit bad || seen != 2 * (ARGC - 1) }' "$ledger".* >"$work/left" ||
        not_ok "$1: each message has met a buffer, and no completion queue has run over" "$work/left"
}

# run ROCE_OR_IWARP RANKS "PROGRAM ARGUMENT…" [OPTION …]
run() {
    local kind=$1 ranks=$2 command=$3 line
    shift 3
    line="verbs over $kind, $ranks ranks: $command $*"
    wanted "$line" || return 0
    ! brief || case "$kind $command $*" in *bigmsg* | "iwarp coll "* | *rnr_retry*) return 0 ;; esac
    over "$kind"
    mpi_job "$line" "$ranks" "$command" "${device[@]}" --mca pml ob1 --mca btl verbs,self "${loopback[@]}" "$@"
    # As many as have ended by themselves.
    ranks=$(find "$work/ledgers" -name "$jobs.*" | wc -l)
    verbs_ledger "$ledger" "$ranks" >"$work/left"
    if [ -s "$work/left" ] || [ "$ranks" = 0 ]; then
        not_ok "$line: the stand-in has ledgers, and nothing is left in them" "$work/left"
    else
        buffered "$line"
    fi
}

[ -e target/mca/libhawser.so ] || give_up "target/mca is there: make stage"
mpi_compile $(mpi_programs)
verbs_libraries "$work/lib" || give_up "the stand-in compiles"

# The two kinds differ in who may speak first, in what a completion says, and in what is done with a message that finds no
# buffer. The programs in full over one of them; over the other, what goes other ways there.
for program in p2p datatypes ibsend "probe eager" "truncate eager" cancel tags comms bigmsg busy "flood 500" "threads 100"; do
    run roce 2 "$program"
done
run roce 4 intercomm
for program in p2p bigmsg "threads 100"; do run iwarp 2 "$program"; done
# Processes of one node have windows in shared memory, unless that is left out; what is left goes by the BTL.
windows=(--mca osc pt2pt)
[ "$host" = debian12 ] || windows=(--mca osc "^sm")
for kind in roce iwarp; do
    run $kind 2 "rma allocate" "${windows[@]}"
    # Who meets later: a job of another number, of which one side waits for the launcher while its last message is to leave.
    run $kind 2 "spawn ports"
    # PRRTE gives what it is told by `-x` to the first job only: others have no stand-in.
    [ "$host" != debian12 ] || run $kind 2 spawn
done
# Windows of osc/rdma want a BTL with atomic operations to each process, the own one too.
# atomics RANKS ROUNDS [OPTION …]
atomics() {
    local ranks=$1 rounds=$2 line
    shift 2
    line="verbs over roce, $ranks ranks: atomics $rounds, by the device${*:+ $*}"
    wanted "$line" || return 0
    over roce
    mpi_job "$line" "$ranks" "atomics $rounds" "${device[@]}" --mca pml ob1 --mca btl verbs,self "${loopback[@]}" --mca osc rdma "$@"
    # Of one kind of windows on one node at least, each rank has drawn the tickets of all other ranks by the device.
    awk -v ranks="$ranks" -v rounds="$rounds" \
        '$1 == "counter" && $3 == "num_atomics" { count++; if ($4 < rounds * (ranks - 1)) bad = 1 } END { exit bad || count != ranks }' \
        "$log" || not_ok "$line: the device has done them" "$log"
    verbs_ledger "$ledger" "$ranks" >"$work/left" || not_ok "$line: nothing is left" "$work/left"
    buffered "$line"
}
# Debian 12's osc/rdma has no lock around a compare-and-swap: what a rank does with its own word is beside what devices do.
atomics 2 50
if brief; then atomics 4 300; else atomics 4 2000; fi
# One at a time is under way to each peer.
atomics 3 50 --mca btl_verbs_ib_qp_ous_rd_atom 1 --mca btl_verbs_ib_max_rdma_dst_ops 1
# Processes of one node have the own words in shared memory. Of several nodes, as they seem to be that a launcher of ours starts here,
# each changes its own by the device, too: one connection to each other process, and both ends of one to itself. Each node has a
# folder of its own for what a daemon keeps there: of several that begin in one, some end at once, and the launcher waits for them.
# several_nodes: fills `of_nodes`, what has three ranks be on three of them.
several_nodes() {
    local agent=$root/$work/agent
    printf '%s\n' '#!/bin/sh' 'while case $1 in -*) ;; *) false ;; esac do shift; done' \
        'TMPDIR=${0%/*}/nodes/$1 && mkdir -p "$TMPDIR" && export TMPDIR && shift && exec sh -c "$*"' >"$agent"
    chmod +x "$agent"
    of_nodes=(--host nodea:1,nodeb:1,nodec:1 --mca plm_rsh_agent "$agent" --mca plm_rsh_no_tree_spawn 1)
}
nodes() { # WIRE
    local line="verbs over roce, wire $1, 3 nodes: atomics, by the device, the own words too"
    wanted "$line" || return 0
    several_nodes
    over roce
    mpi_job "$line" 3 "atomics 50" "${device[@]}" "${of_nodes[@]}" --mca pml ob1 --mca btl verbs,self "${loopback[@]}" --mca btl_verbs_wire "$1" --mca osc rdma
    awk '$1 == "counter" && $3 == "num_connected" { count++; if ($4 != 4) bad = 1 } END { exit bad || count != 3 }' "$log" ||
        not_ok "$line: each is connected to all, and to itself" "$log"
    verbs_ledger "$ledger" 3 >"$work/left" || not_ok "$line: nothing is left" "$work/left"
}
if [ "$host" = debian12 ]; then for wire in own openib; do nodes $wire; done; fi
for kind in roce iwarp; do
    for program in coll "p2p small"; do run $kind 4 "$program"; done
    # Few credits, of one buffer at a time in the end: a receiver that computes lets its senders wait, and no message is lost.
    run $kind 4 "flood 20" --mca btl_verbs_receive_queues P,128,2:S,65536,4,1,2,1
    run $kind 2 "p2p small" --mca btl_verbs_receive_queues P,65536,8,4
    # Everything in fragments.
    run $kind 2 p2p --mca btl_verbs_flags send
done
# Whoever connects and whoever accepts send again after `ib_timeout` what is not acknowledged, and not after librdmacm's own time.
line="verbs over roce, 2 ranks: the time of acknowledgement is both sides'"
if wanted "$line"; then
    over roce
    mpi_job "$line: p2p" 2 "p2p small" "${device[@]}" --mca pml ob1 --mca btl verbs,self "${loopback[@]}"
    log=$work/left
    grep -h '^tally with-the-managers-time ' "$ledger".* >"$log"
    [ "$(sort -u "$log")" = "tally with-the-managers-time 0" ]
    check "$line" $?
fi
# Whoever accepts a message says how long its sender waits where it meets no buffer, on connections that rdma_cm makes, too: not for
# the 655 ms of code 0, which librdmacm leaves, and which may be asked for.
for code in 12 0; do
    line="verbs over roce, 2 ranks: the receiver-not-ready timer (ib_min_rnr_timer) is set where rdma_cm connects"
    [ $code != 0 ] || line="$line: the stand-in sees where it is not"
    wanted "$line" || continue
    over roce
    mpi_job "$line: p2p" 2 "p2p small" "${device[@]}" --mca pml ob1 --mca btl verbs,self "${loopback[@]}" --mca btl_verbs_ib_min_rnr_timer $code
    log=$work/left
    grep -h '^tally with-the-managers-receiver-timer ' "$ledger".* >"$log"
    [ "$(wc -l <"$log")" = 2 ] && [ "$(awk -v code=$code '($3 > 0) != (code == 0)' "$log" | wc -l)" = 0 ]
    check "$line" $?
done
# What a process publishes is longer than eight bits can say: of twelve queues of which all is written out.
twelve=P,128,256,192,128,4
for size in 256 512 1024 1536 2048 3072 4096 8192 12288 32768 65536; do twelve+=:S,$size,1024,1008,64,16; done
for kind in roce iwarp; do
    line="verbs over $kind, 2 ranks: a record longer than 255 bytes"
    wanted "$line" || continue
    over $kind
    mpi_job "$line" 2 "p2p small" "${device[@]}" --mca pml ob1 --mca btl verbs,self "${loopback[@]}" --mca btl_verbs_receive_queues "$twelve"
    log=$work/left
    grep -h '^thing queue-pairs ' "$ledger".* >"$log"
    # One more where a process asks to be connected.
    [ "$(awk '$4 >= 12' "$log" | wc -l)" = 2 ] && [ ${#twelve} -gt 255 ]
    check "$line: all twelve queues are connected" $?
done
# At addresses of IPv6.
loopback=(--mca btl_verbs_ipaddr_include ::1/128)
for kind in roce6 iwarp6; do run $kind 2 "p2p small"; done
run roce6 4 "coll small"
loopback=(--mca btl_verbs_ipaddr_include 127.0.0.0/8)
# Buffers of a shared queue are posted as lists: of 4096 with much fewer calls, though what comes is posted again as well.
line="verbs over roce, 2 ranks: buffers are posted many at a time"
if wanted "$line"; then
    over roce
    mpi_job "$line: p2p" 2 "p2p small" "${device[@]}" --mca pml ob1 --mca btl verbs,self "${loopback[@]}" \
        --mca btl_verbs_receive_queues P,128,16:S,1024,4096,3072,64,4096:S,65536,64
    log=$work/left
    grep -h '^call ibv_post_srq_recv ' "$ledger".* >"$log"
    [ "$(wc -l <"$log")" = 2 ] && [ "$(awk '$3 >= 4096' "$log" | wc -l)" = 0 ]
    check "$line" $?
fi
# So are those that come free one after the other: each of 2500 messages costs a call otherwise.
line="verbs over roce, 2 ranks: buffers of messages that come one at a time are posted many at a time"
if wanted "$line"; then
    over roce
    log=$work/logs/one-at-a-time
    "${there[@]}" mpicc -O1 -Ic-tests/mpi bench/pingpong.c -o "$work/pingpong" >"$log" 2>&1 || give_up "the ping-pong compiles"
    c-tests/patience.sh 60 "${there[@]}" mpirun --oversubscribe -n 2 --mca mca_base_component_path "$root/target/mca:$stock" "${quiet[@]}" \
        "${device[@]}" --mca pml ob1 --mca btl verbs,self "${loopback[@]}" "$root/$work/pingpong" -l -m 4096 -M 4096 -n 500 -c 4 \
        >"$log" 2>&1 </dev/null
    status=$?
    grep -h '^call ibv_post_srq_recv ' "$ledger".* >>"$log"
    says '^check messages=[0-9]{4,} wrong=0$' && [ "$(awk '/^call ibv_post_srq_recv / && $3 < 1000' "$log" | wc -l)" = 2 ]
    check "$line" $?
fi
# What is read makes room for what follows though its buffers are fewer than are posted together: all that is posted is lent here, to
# 8 peers, and one of them has more to send while the reader computes.
line="verbs over roce, 9 ranks: a reader that computes has made room for as much as it has read"
if wanted "$line"; then
    over roce
    rm -f "$work/outside."*
    mpi_job "$line" 9 "outside $root/$work/outside 1000" "${device[@]}" --mca pml ob1 --mca btl verbs,self "${loopback[@]}" \
        --mca btl_verbs_receive_queues P,128,8:S,4096,32,24,8,32:S,65536,64
fi
# Memory that iWARP sends from is free when its own completion says so: eager messages, parts of long ones, and what is read.
line="verbs over iwarp, 2 ranks: who sends out of its memory hears that it is done with"
if wanted "$line"; then
    over iwarp
    mpi_job "$line: p2p" 2 p2p "${device[@]}" --mca pml ob1 --mca btl verbs,self "${loopback[@]}"
    log=$work/left
    grep -h '^tally sent-out-of-memory-untold ' "$ledger".* >"$log"
    [ "$(sort -u "$log")" = "tally sent-out-of-memory-untold 0" ]
    check "$line" $?
fi
# As many completions at a time as openib reads.
run roce 2 "p2p small" --mca btl_verbs_poll_cq_batch 256
# Calls that fail and events that are lost, doubled, late or errors, while processes are connected: it is tried again.
faults() { # KIND FAULTS OPTION …
    local kind=$1 faults=$2
    shift 2
    run "$kind" 2 "p2p small" -x "HAWSER_VERBS_FAULTS=$faults" "$@"
}
calls=rdma_resolve_addr:2:19,rdma_create_qp:2:12,rdma_connect:3:110,rdma_accept:2:12,ibv_reg_mr:4:12,ibv_post_recv:3:12,ibv_post_srq_recv:5:12
events=ADDR_RESOLVED:1:lost,ROUTE_RESOLVED:2:110,ESTABLISHED:1:lost,ESTABLISHED:3:110,ESTABLISHED:5:twice,ESTABLISHED:6:late,REJECTED:1:lost
# Memory that is not there for as many buffers as are wanted is told of, and there are fewer: of a shared queue's, and of those that
# messages are sent from.
for which in 4 6; do
    line="verbs over roce, 2 ranks: too little memory for buffers ($which) is told, and messages go"
    wanted "$line" || continue
    over roce
    mpi_job "$line" 2 "p2p small" "${device[@]}" --mca pml ob1 --mca btl verbs,self "${loopback[@]}" -x "HAWSER_VERBS_FAULTS=ibv_reg_mr:$which:12@1"
    [ "$(grep -c 'btl_verbs: roce_0:1: [0-9]* bytes for messages could not be registered' "$log")" = 1 ] && says 'ulimit -l'
    check "$line: once" $?
done
# Where there is not a single one, who waits for it ends after `peer_timeout`, and the job with it; the other may be the first to say
# so, and the launcher end the one that knows why.
for which in 2 5 6 7 8; do
    line="verbs over roce, 2 ranks: no memory for any buffer ($which) ends the job, and says so"
    wanted "$line" || continue
    over roce
    log=$work/logs/no-memory-$which
    c-tests/patience.sh 60 "${there[@]}" mpirun --oversubscribe -n 2 --mca mca_base_component_path "$root/target/mca:$stock" "${quiet[@]}" \
        "${device[@]}" --mca pml ob1 --mca btl verbs,self "${loopback[@]}" --mca btl_verbs_peer_timeout 2000 \
        -x "HAWSER_VERBS_FAULTS=ibv_reg_mr:$which+:12@1" "$root/$work/p2p" small >"$log" 2>&1 </dev/null
    status=$?
    [ "$status" != 0 ] && [ "$status" != 124 ] && says 'bytes for messages could not be registered' &&
        says 'btl_verbs: rank (0 of job [0-9]+ is lost: there is no memory that can be registered|1 of job [0-9]+ is lost: the peer has ended)'
    check "$line" $?
done
# Nor is there any for what a program writes straight into another's: Open MPI tries that again for ever, unless it is told.
for wire in own openib; do
    line="verbs over roce, wire $wire, 2 ranks: no memory for RDMA ends the job, and says so"
    wanted "$line" || continue
    over roce
    log=$work/logs/no-memory-for-rdma
    c-tests/patience.sh 60 "${there[@]}" mpirun --oversubscribe -n 2 --mca mca_base_component_path "$root/target/mca:$stock" "${quiet[@]}" \
        "${device[@]}" --mca pml ob1 --mca btl verbs,self "${loopback[@]}" --mca osc rdma --mca btl_verbs_peer_timeout 2000 \
        --mca btl_verbs_wire $wire -x "HAWSER_VERBS_FAULTS=ibv_reg_mr:15+:12@0" "$root/$work/rma" create >"$log" 2>&1 </dev/null
    status=$?
    [ "$status" != 0 ] && [ "$status" != 124 ] && says 'btl_verbs: roce_0:1: [0-9]+ bytes for RDMA could not be registered' &&
        says 'btl_verbs: rank (1 of job [0-9]+ is lost: there is no memory that can be registered|0 of job [0-9]+ is lost: the peer has ended)'
    check "$line" $?
done
# may_lock KIB: what follows is started with so little memory that may be locked.
may_lock() {
    unlimited=(${there[@]+"${there[@]}"})
    there+=(setpriv --bounding-set=-ipc_lock prlimit "--memlock=$(($1 << 10)):$(($1 << 10))")
}
# What an ordinary user may lock, by default: messages are as long as all of it, and the first that are sent. They are copied, and
# nothing is refused of which the user would be told.
# With more ranks there are fewer buffers than those who want some; with less memory, what no message uses any more goes.
for job in own:2:8192:"first 8380416" own:2:8192:"first 8388608 4" own:2:8192:"first 3000000 4" own:4:8192:"first 8388608 2" \
    own:4:8192:alltoall own:4:8192:coll own:8:4608:"first 2200000" openib:2:8192:"first 8388608 2" openib:4:8192:coll; do
    IFS=: read -r wire ranks locked command <<<"$job"
    line="verbs over roce, wire $wire, $ranks ranks: $locked KiB may be locked: $command"
    wanted "$line" || continue
    over roce
    may_lock "$locked"
    mpi_job "$line" "$ranks" "$command" "${device[@]}" --mca pml ob1 --mca btl verbs,self "${loopback[@]}" --mca btl_verbs_wire "$wire"
    there=(${unlimited[@]+"${unlimited[@]}"})
    [ "$wire" = openib ] || { ! says 'could not be registered'; check "$line: nothing is said" $?; }
done
# A window that stays leaves no room for a message's memory: each is copied, for however long.
line="verbs over roce, 2 ranks: a window has what may be locked, and messages are copied for longer than a peer has to answer"
if wanted "$line"; then
    over roce
    may_lock 8192
    mpi_job "$line" 2 "held 4718592 2621440 4" "${device[@]}" --mca pml ob1 --mca btl verbs,self "${loopback[@]}" --mca osc rdma \
        --mca btl_verbs_peer_timeout 1000
    there=(${unlimited[@]+"${unlimited[@]}"})
fi
# A device that takes nothing more, and says that it is for want of memory, might again; and one that takes no buffer of a shared
# queue: nothing arrives, and it still answers for it.
for what in message:ibv_post_send:50 buffer:ibv_post_srq_recv:3; do
    IFS=: read -r what call which <<<"$what"
    line="verbs over roce, 2 ranks: a device that takes no $what any more ends the job, and says so"
    wanted "$line" || continue
    over roce
    log=$work/logs/no-$what-taken
    c-tests/patience.sh 60 "${there[@]}" mpirun --oversubscribe -n 2 --mca mca_base_component_path "$root/target/mca:$stock" "${quiet[@]}" \
        "${device[@]}" --mca pml ob1 --mca btl verbs,self "${loopback[@]}" --mca btl_verbs_peer_timeout 2000 \
        -x "HAWSER_VERBS_FAULTS=$call:$which+:12@1" "$root/$work/p2p" small >"$log" 2>&1 </dev/null
    status=$?
    [ "$status" != 0 ] && [ "$status" != 124 ] && says 'btl_verbs: rank [01] of job [0-9]+ is lost: '
    check "$line" $?
done
# The connection manager tells nothing any more.
line="verbs over roce, 2 ranks: no event can be read any more: the job ends, and says why"
if wanted "$line"; then
    over roce
    log=$work/logs/no-events
    c-tests/patience.sh 60 "${there[@]}" mpirun --oversubscribe -n 2 --mca mca_base_component_path "$root/target/mca:$stock" "${quiet[@]}" \
        "${device[@]}" --mca pml ob1 --mca btl verbs,self "${loopback[@]}" -x HAWSER_VERBS_FAULTS=rdma_get_cm_event:6+:12@1 \
        "$root/$work/p2p" small >"$log" 2>&1 </dev/null
    status=$?
    [ "$status" != 0 ] && [ "$status" != 124 ] && says 'btl_verbs: rank [01] of job [0-9]+ is lost: ' && ! says 'Segmentation|panicked'
    check "$line" $?
fi
# Buffers that are few for good: one comes back though nothing follows what was sent from it.
for most in 1 4 8; do
    for kind in roce iwarp; do run $kind 2 "p2p small" --mca btl_verbs_free_list_num $most --mca btl_verbs_free_list_max $most; done
done
run roce 4 "flood 200" --mca btl_verbs_free_list_num 2 --mca btl_verbs_free_list_max 2
# Transfers that the device refuses, several times in a row, with nothing under way that would tell, not even a question whether the
# peer is there: they are tried again.
refuse() { run roce 2 "pinned same 5" -x "HAWSER_VERBS_FAULTS=$1" --mca btl_verbs_peer_timeout 0 "${@:2}"; }
refuse ibv_post_send:5:12@1,ibv_post_send:6:12@1
refuse ibv_post_send:3:12@1,ibv_post_send:4:12@1,ibv_post_send:5:12@1
refuse ibv_post_send:4:12@0,ibv_post_send:5:12@0 --mca btl_verbs_flags send,put
for kind in roce iwarp; do
    faults $kind $calls
    faults $kind $events --mca btl_verbs_connect_timeout 1000
done
# What attempts had of a completion queue that came to nothing is used again: there is one queue, though it is full of few.
line="verbs over roce, what comes to nothing gives back its room in completion queues"
if wanted "$line"; then
    over roce
    mpi_job "$line: p2p" 2 "p2p small" "${device[@]}" --mca pml ob1 --mca btl verbs,self "${loopback[@]}" --mca btl_verbs_cq_size 4600 \
        -x HAWSER_VERBS_FAULTS=rdma_accept:1:12,rdma_accept:2:12,rdma_accept:3:12,rdma_accept:4:12,rdma_accept:5:12,rdma_accept:6:12
    log=$work/left
    grep -h '^thing completion-queues ' "$ledger".* >"$log"
    [ "$(sort -u "$log")" = "thing completion-queues made 1 most 1 left 0" ]
    check "$line" $?
fi
# --- memory that stays registered

# counted "LINE" KIND "PROGRAM ARGUMENT…" CONDITION [OPTION …]: what the ranks have counted is so: an awk expression in which
# each counter is a variable.
counted() {
    local line="verbs over $2, $1" condition=$4 kind=$2 command=$3
    shift 4
    wanted "$line" || return 0
    over "$kind"
    mpi_job "$line" 2 "$command" "${device[@]}" --mca pml ob1 --mca btl verbs,self "${loopback[@]}" "$@"
    awk -v condition="$condition" '
        $1 == "counter" { all[$2, $3] = $4; ranks[$2] = 1 }
        END {
            for (rank in ranks) {
                hits = all[rank, "num_cache_hits"]; misses = all[rank, "num_cache_misses"]
                evictions = all[rank, "num_cache_evictions"]; invalidations = all[rank, "num_cache_invalidations"]
                registrations = all[rank, "num_registrations"] + all[rank, "num_transfer_registrations"]
                if (!('"$condition"')) bad = 1
                count++
            }
            exit bad || count != 2
        }' "$log" || not_ok "$line: $condition" "$log"
    ranks=$(find "$work/ledgers" -name "$jobs.*" | wc -l)
    verbs_ledger "$ledger" "$ranks" >"$work/left" || not_ok "$line: nothing is left" "$work/left"
}
# Memory comes while a process computes to which it has been refused nine times.
refused=$(printf 'ibv_reg_mr:%s:12@1,' 6 7 8 9 10 11 12 13 14)
counted "memory that was refused is asked for again before a peer is given up for it" roce "seldom 10 3000 begun" \
    'all[rank, "num_recvs"] > 200' --mca btl_verbs_free_list_num 1 --mca btl_verbs_peer_timeout 2000 -x "HAWSER_VERBS_FAULTS=${refused%,}"
# 1 MiB less what is sent ahead, in parts of 128 KiB.
counted "what is put goes in parts that are as long as openib's parameter says" roce "pinned same 3" \
    'all[0, "num_puts"] + all[1, "num_puts"] == 3 * 8' --mca btl_verbs_flags send,put --mca btl_openib_rdma_pipeline_frag_size 131072
counted "what is put goes in one part otherwise" roce "pinned same 3" 'all[0, "num_puts"] + all[1, "num_puts"] == 3' --mca btl_verbs_flags send,put
for kind in roce iwarp; do
    counted "a buffer is registered once" $kind "pinned same 200" "registrations == 1 && hits >= 199 && misses == 1"
    for way in unmap over move empty segment thread; do
        ! brief || [ "$way" = unmap ] || [ "$way" = segment ] || [ $way = thread ] || continue
        # Where others unmap all the time, it may be told in the midst of that, and then counts as everything.
        [ $way = thread ] && count=">=" || count="=="
        counted "memory that is replaced ($way)" $kind "pinned $way 30" "registrations $count 30 && invalidations >= 29"
    done
    # What is put into is registered too, over RoCE once more than what is read: all of it goes with the memory.
    counted "memory that is replaced (unmap), and put into" $kind "pinned unmap 30" \
        'all[0, "num_puts"] + all[1, "num_puts"] == 30 && registrations >= 30 && registrations % 30 == 0 && invalidations == registrations / 30 * 29' \
        --mca btl_verbs_flags send,put
    for function in madvise sbrk; do
        counted "where somebody else changes $function nothing more stays registered" $kind "pinned changed-$function 6" \
            "registrations == 6 && hits <= 1"
    done
    counted "with mpi_leave_pinned 0 nothing stays registered" $kind "pinned unmap 20" \
        "registrations >= 20 && hits + misses + invalidations == 0" --mca mpi_leave_pinned 0
    counted "where Open MPI cannot tell of memory nothing stays registered" $kind "pinned unmap 20" \
        "registrations >= 20 && hits + misses + invalidations == 0" --mca memory ^patcher
    counted "so many registrations are kept" $kind "pinned many 12 3" \
        "registrations == 36 && evictions == 36 - 8" --mca btl_verbs_reg_mru_len 8
    counted "so many bytes are kept" $kind "pinned many 12 3" \
        "registrations == 36 && evictions == 36 - 5" --mca btl_verbs_reg_mru_size 5
    counted "all that there is room for is kept" $kind "pinned many 12 3" "registrations == 12 && hits >= 24" \
        --mca btl_verbs_reg_mru_size 12 --mca btl_verbs_reg_mru_len 12
    counted "memory that cannot be written is registered once" $kind "pinned fixed 50" "registrations == 1 && hits >= 49"
    counted "what is longer than all that may be kept takes nothing along" $kind "pinned great 10" \
        "registrations == 11 && hits >= 9" --mca btl_verbs_reg_mru_size 10
    counted "what is kept gives way where there is no room" $kind "pinned many 12 3" "evictions == 1 && registrations == 13" \
        -x HAWSER_VERBS_FAULTS=ibv_reg_mr:12:12
done
counted "who asked for it hears that Open MPI cannot tell of memory" roce "pinned unmap 2" "hits + misses == 0" \
    --mca memory ^patcher --mca mpi_leave_pinned 1
! wanted "verbs over roce, who asked for it hears that Open MPI cannot tell of memory" || says 'mpi_leave_pinned is 1: Open MPI cannot tell' ||
    not_ok "verbs over roce, who asked for it hears that Open MPI cannot tell of memory: a line says so" "$log"
# That memory has gone is seen by the stand-in, where the component does not hear of it.
line="verbs over roce, memory that is replaced and not told of: the stand-in sees it"
if wanted "$line"; then
    log=$work/left
    "${there[@]}" gcc -O2 -Wall -Wextra -Werror -fPIC -shared c-tests/verbs/preload/deaf.c -o "$work/deaf.so" -ldl >"$log" 2>&1 ||
        give_up "what is preloaded compiles"
    over roce
    log=$work/logs/deaf
    c-tests/patience.sh 120 "${there[@]}" mpirun --oversubscribe -n 2 --mca mca_base_component_path "$root/target/mca:$stock" \
        "${quiet[@]}" "${device[@]}" --mca pml ob1 --mca btl verbs,self "${loopback[@]}" -x "LD_PRELOAD=$root/$work/deaf.so" \
        "$root/$work/pinned" unmap 20 >"$log" 2>&1 </dev/null
    status=$?
    [ "$status" != 0 ] && says 'is used, and its memory was unmapped meanwhile'
    check "$line" $?
fi

# --- what is counted seldom

# summed "LINE" KIND RANKS "PROGRAM ARGUMENT…" CONDITION [OPTION …]: what all ranks have counted is so: an awk expression, of
# `all[RANK, NAME]`, of the `sum`, `least` and `most` of a NAME over the ranks, and of `burst[NUMBER, NAME]`, which `counted` says.
summed() {
    local line="verbs over $2, $3 ranks: $1" condition=$5 kind=$2 ranks=$3 command=$4
    shift 5
    wanted "$line" || return 0
    over "$kind"
    rm -f "$work/go-on"
    mpi_job "$line" "$ranks" "$command" "${device[@]}" --mca pml ob1 --mca btl verbs,self "${loopback[@]}" "$@"
    awk -v ranks="$ranks" '
        $1 == "counter" {
            all[$2, $3] = $4; sum[$3] += $4; seen[$2] = 1
            if (!($3 in most) || $4 > most[$3]) most[$3] = $4
            if (!($3 in least) || $4 < least[$3]) least[$3] = $4
        }
        $1 == "burst" { burst[$2, $3] = $4 }
        END { for (rank in seen) count++; exit !(count == ranks && ('"$condition"')) }' "$log" || not_ok "$line: $condition" "$log"
    verbs_ledger "$ledger" "$ranks" >"$work/left" || not_ok "$line: nothing is left" "$work/left"
}
nothing_bad='sum["num_failed"] + sum["num_corrupt"] + sum["num_dropped"] + sum["num_rnr"] == 0'
for kind in roce iwarp; do
    # Of those who send first, one asks to be connected and another connects, whichever ranks have the smaller addresses. Each who
    # is asked rejects that, and connects; the other one may be connected before it has read the rejection.
    summed "each connection has a CTS of either side, and who may not connect has asked the other to" $kind 3 "counted ring" \
        'least["num_connected"] == 2 && sum["num_connected"] == 6 && sum["num_initiated"] == 3 && sum["num_attempts"] == 6 &&
        least["num_cts_sent"] == 2 && sum["num_cts_sent"] == 6 && least["num_cts_received"] == 2 && sum["num_cts_received"] == 6 &&
        sum["num_kicks"] >= 1 && sum["num_kicks"] <= 2 && sum["num_rejects"] == sum["num_kicks"] &&
        sum["num_rejected"] <= sum["num_kicks"] && most["max_handover_us"] > 0 &&
        least["num_stalls_connection"] == 1 && sum["num_stalls_connection"] == 3 && '"$nothing_bad"
    # Rank 0's message waits for the connection, and rank 1's for nothing. Who has connected over iWARP speaks first by each queue
    # that has no CTS.
    [ $kind = roce ] && firsts=0 || firsts=3
    summed "of what is sent it is counted whether it waited, was copied to the device, or was the component's own" $kind 2 "counted ring" \
        'all[0, "num_queued"] == 1 && all[1, "num_queued"] == 0 && all[0, "num_sends_at_once"] == 0 && all[1, "num_sends_at_once"] == 1 &&
        least["num_inline_sends"] >= 1 && sum["num_controls"] == sum["num_cts_sent"] + '"$firsts && $nothing_bad"
    summed "nothing is copied to the device where max_inline_data is 0" $kind 2 "counted ring" \
        'sum["num_sends"] >= 2 && sum["num_inline_sends"] == 0 && '"$nothing_bad" --mca btl_verbs_max_inline_data 0
    # 60000 bytes: of 12288 with the announcement, and of as many as are left in parts.
    all_sent='all[0, "send_bytes"] == all[1, "recv_bytes"] && all[0, "send_bytes"] > 600000 && sum["get_bytes"] + sum["put_bytes"] == 0'
    for parts in 20:65536:12288 40:16384:12288 50:16384:4096; do
        IFS=: read -r sends most first <<<"$parts"
        summed "what is sent arrives, in parts of max_send_size $most behind $first bytes (rndv_eager_limit)" $kind 2 "counted stream 10 60000" \
            'all[0, "num_sends"] == '"$sends"' && all[1, "num_recvs"] == '"$sends && $all_sent && $nothing_bad" \
            --mca btl_verbs_flags send --mca btl_verbs_max_send_size "$most" --mca btl_verbs_rndv_eager_limit "$first"
    done
    summed "what is read is counted where it is read" $kind 2 "counted stream 10 60000" \
        'all[1, "num_gets"] == 10 && all[1, "get_bytes"] == 600000 && all[0, "get_bytes"] + sum["put_bytes"] == 0 &&
        all[0, "num_sends"] == 10 && all[0, "send_bytes"] == all[1, "recv_bytes"] && '"$nothing_bad"
    summed "what is put is counted where it comes from" $kind 2 "counted stream 10 60000" \
        'all[0, "num_puts"] == 10 && all[0, "put_bytes"] == 600000 && all[1, "put_bytes"] + sum["get_bytes"] == 0 &&
        all[0, "send_bytes"] == all[1, "recv_bytes"] && '"$nothing_bad" --mca btl_verbs_flags send,put
    # There are eight credits for a hundred messages, and who sends nothing gives them back by words alone: one for sixteen at least.
    summed "who has nothing to send gives credits back by words" $kind 2 "counted stream 100 1000" \
        'all[1, "num_credit_words"] >= 100 / 16 && all[1, "num_sends"] == 0 && '"$nothing_bad" --mca btl_verbs_receive_queues P,65536,8,4
    # The first request cannot be accepted, and none of its attempt.
    summed "a request that is rejected is counted, and asked again" $kind 2 "counted ring" \
        'sum["num_rejected"] >= 1 && sum["num_attempts"] == 4 && sum["num_connected"] == 2 && '"$nothing_bad" \
        -x HAWSER_VERBS_FAULTS=rdma_accept:1:12
    # Of three shared queues a peer is lent the first four credits each.
    summed "credits of shared queues are lent" $kind 3 "counted ring" \
        'least["num_credits_lent"] == 2 * 3 * 4 && most["num_credits_lent"] == 2 * 3 * 4'
    summed "there are no such credits where all queues are private" $kind 3 "counted ring" \
        'sum["num_credits_lent"] + sum["num_recalls"] == 0' --mca btl_verbs_receive_queues P,128,16:P,65536,16
    # There are four buffers for four peers, of which one could use more than one.
    summed "credits that are not used are asked back" $kind 5 "counted recall" \
        'all[0, "num_recalls"] >= 1 && all[0, "num_credits_lent"] > 4 && '"$nothing_bad" \
        --mca btl_verbs_receive_queues P,128,16:S,4096,4,2,4:S,65536,64
    # What is begun first waits for whatever there is too little of, and all that follows for its turn.
    stalls="connection credit slot buffer"
    stalled() { # WHAT FIRST SECOND NUMBER OPTION …
        local what=$1 first=$2 second=$3 number=$4 name condition
        shift 4
        condition="burst[$number, \"num_stalls_$what\"] == 1"
        for name in $stalls; do [ "$name" = "$what" ] || condition+=" && burst[$number, \"num_stalls_$name\"] == 0"; done
        summed "what waits for a $what is counted as that" $kind 2 "counted burst $root/$work/go-on $first $second 1000" "$condition" "$@"
    }
    stalled connection 10 1 1
    stalled credit 1 20 2 --mca btl_verbs_receive_queues P,65536,8,4
    stalled buffer 1 20 2 --mca btl_verbs_receive_queues P,65536,32,16 --mca btl_verbs_free_list_num 4 --mca btl_verbs_free_list_max 4
    # The first has had the peer lend more credits than there are places.
    stalled slot 400 60 2 --mca btl_verbs_receive_queues P,128,16:S,65536,400,200,1
done

# --- the short path asks for nothing

log=$work/log
"${there[@]}" gcc -O2 -Wall -Wextra -Werror -fPIC -shared c-tests/verbs/preload/calls.c -o "$work/calls.so" -ldl >"$log" 2>&1 ||
    give_up "what is preloaded compiles"
# asked "LINE" KIND "LENGTH ROUNDS …" CONDITION: what hawser has asked of the C library between two marks is so, in either rank.
asked() {
    local line="verbs over $2, 2 ranks: $1" condition=$4
    wanted "$line" || return 0
    over "$2"
    rm -f "$work/marked"
    mpi_job "$line" 2 "steady $3" "${device[@]}" --mca pml ob1 --mca btl verbs,self "${loopback[@]}" -x "LD_PRELOAD=$root/$work/calls.so"
    awk '
        $1 == "calls" && NF == 4 { all[$2, $3] = $4; ranks[$2] = 1 }
        END {
            for (rank in ranks) {
                allocations = all[rank, "allocations"]; locks = all[rank, "locks"]; system_calls = all[rank, "system-calls"]
                if (!('"$condition"')) bad = 1
                count++
            }
            exit bad || count != 2
        }' "$log" || not_ok "$line: $condition" "$log"
}
for kind in roce iwarp; do
    asked "short messages take no allocation, lock or system call" $kind "8 5000" "allocations + locks + system_calls == 0"
    asked "nor do streams of them" $kind "8 250 stream" "allocations + locks + system_calls == 0"
    # What is counted is there where there is something to be counted.
    asked "long messages take allocations, and these are counted" $kind "65536 100" "allocations > 0"
    asked "to be connected takes allocations and system calls, and these are counted" $kind "8 100 $root/$work/marked" \
        "allocations > 0 && system_calls > 0"
done

# The kernel loses the way to a peer, which goes on answering. A process that computes meanwhile asks before it gives it up.
for kind in roce iwarp; do
    counted "the way to a peer is lost, and who computes asks for it first" $kind "seldom 1000 5000" 'all[rank, "num_probes"] >= 1' \
        -x HAWSER_VERBS_FAULTS=ESTABLISHED:*:doubted --mca btl_verbs_ib_timeout 16
done

# Messages that nobody receives, to a process that has ended before it was connected: whoever ends as well does not wait for it.
for kind in roce iwarp; do for how in early even odd; do run $kind 4 "unmatched $how"; done; done

# RNR is never resorted to: with a retry of 0, one message without a buffer would end a connection.
run roce 4 coll --mca btl_verbs_ib_rnr_retry 0
run roce 4 "p2p small" --mca mpi_add_procs_cutoff 0
# Shared queues only: a private one is added.
run roce 2 p2p --mca btl_verbs_receive_queues S,256,256,192,128:S,2048,1024,1008,64:S,12288,1024,1008,64:S,65536,128,100,64
# Its other name.
line="under the name openib, 2 ranks: p2p"
if wanted "verbs over roce, $line"; then
    over roce
    mpi_job "verbs over roce, $line" 2 p2p "${device[@]}" --mca pml ob1 --mca btl openib,self --mca btl_openib_ipaddr_include 127.0.0.0/8
fi

# --- openib's wire: jobs that have processes with Open MPI 4.1's own openib, which tests/rig/openib builds with rdma_cm from
# Debian's sources (fetched once, and kept). It takes no address of 127.0.0.0/8, so that these run in a network namespace.

declare -A queues=(
    [many]=P,128,256,192,128:S,2048,1024,1008,64:S,12288,1024,1008,64:S,65536,1024,1008,64
    # Few credits, also of buffers for messages about credits; private queues alone, and a shared one.
    [private]=P,128,8,4,2,4:P,65536,8,4,2,4
    [shared]=P,128,8,4,2,4:S,65536,16,8,4
)
inside='ip link set lo up && ip link add e0 type veth peer name e1 && ip addr add 10.97.0.1/24 dev e0 && ip link set e0 up &&
    ip link set e1 up && exec "$@"'
# fill QUEUES WIRE MIX: fills `whole_job`, all words before those of ranks, and `ranks`, those of each: o is openib's, h hawser's.
fill() {
    local wire=$2 mix=$3 at path
    over roce
    whole_job=(unshare -n sh -c "$inside" sh mpirun --oversubscribe "${quiet[@]}" --mca pml ob1 --mca btl openib,self
        --mca btl_openib_receive_queues "${queues[$1]}" "${@:4}")
    ranks=()
    for ((at = 0; at < ${#mix}; at++)); do
        ranks+=(: -x "LD_LIBRARY_PATH=$root/$work/lib" -x HAWSER_VERBS_DEVICES=roce_0=10.97.0.1/roce -x "HAWSER_VERBS_SYSFS=$root/$work/sys" -n 1 env)
        case ${mix:at:1} in
        o) path=$stock_openib ranks+=(HAWSER_VERBS_STRICT=0) ;;
        h) path=$root/target/mca ranks+=("HAWSER_VERBS_LEDGER=$root/$ledger" "OMPI_MCA_btl_openib_wire=$wire") ;;
        esac
        ranks+=("OMPI_MCA_mca_base_component_path=$path:$stock" "$root/$work/${command[0]}" "${command[@]:1}")
    done
    ranks=("${ranks[@]:1}")
}
# mixed MIX QUEUES "PROGRAM ARGUMENT…" [OPTION …]
mixed() {
    local mix=$1 which=$2 line status only_hawser=${1//o/}
    local -a command whole_job ranks
    read -ra command <<<"$3"
    line="verbs over roce, openib's wire, ranks of openib (o) and hawser (h): $mix: $3, $2 queues${4+ ${*:4}}"
    shift 3
    wanted "$line" || return 0
    fill "$which" openib "$mix" "$@"
    log=$work/logs/mixed
    c-tests/patience.sh 180 "${whole_job[@]}" "${ranks[@]}" >"$log" 2>&1 </dev/null
    status=$?
    [ "$status" = 0 ] && grep -qx "PASS ${command[0]}" "$log" && ! says '\] hawser: |btl_(verbs|openib): |openib BTL'
    status=$?
    if [ "$status" = 0 ]; then
        log=$work/left
        verbs_ledger "$ledger" "${#only_hawser}" >"$log"
        status=$?
    fi
    check "$line" $status
}
if [ "$host" = debian12 ]; then
    log=$work/logs/openib
    if stock_openib=$(tests/rig/openib 2>"$log"); then
        stock_openib=$(dirname "$stock_openib")
        mkdir -p "$work/sys/class/infiniband"
        for mix in ho oh hh; do mixed $mix many p2p; done
        for mix in hooh ohho; do mixed $mix many coll; done
        # All begin at once, and what is said to a peer takes its time: kicks cross the requests that they ask for.
        for mix in oohh hoho; do HAWSER_VERBS_CM_DELAY=200 mixed $mix many "alltoall 2 65536"; done
        for mix in ho oh; do
            mixed $mix many "bigmsg 4194304"
            mixed $mix private "p2p small"
            # What its own component need not do, and is not answered.
            mixed $mix many "p2p small" --mca btl_openib_use_eager_rdma 1 --mca btl_openib_use_message_coalescing 1
        done
        # One buffer of each size, and nothing copied when it is posted: what says that receives are posted goes all the same, and no
        # attempt to connect comes to nothing for it.
        mixed hhhh many "alltoall 20 200" --mca btl_openib_free_list_num 1 --mca btl_openib_free_list_max 1 --mca btl_openib_max_inline_data 0
        line="verbs over roce, openib's wire, ranks of openib (o) and hawser (h): hhhh: alltoall 20 200, one buffer: connected at once"
        if wanted "$line" && compgen -G "$ledger.*" >/dev/null; then
            log=$work/left
            awk '$1 == "call" && $2 == "rdma_create_qp" { print FILENAME, $3; count++; if ($3 > 24) bad = 1 } END { exit bad || count != 4 }' \
                "$ledger".* >"$log"
            check "$line" $?
        fi
        # Many to one, and one to many.
        for mix in hooo ohhh; do
            mixed $mix many "flood 200"
            mixed $mix shared "flood 50" --mca btl_openib_use_message_coalescing 1
        done
        mixed oh many datatypes --mca btl_openib_flags 1
        # Its own component withdraws where a program has threads in MPI.
        mixed hh many "threads 100"
        # Which of both connects follows from their ports: hawser's asks to be connected to nobody, or connects to nobody.
        mpi_compile killed
        for when in silence send send send; do
            line="verbs over roce, openib's wire, ho: openib's rank killed ($when), and the launcher says nothing: hawser's says so, once"
            wanted "$line" || continue
            log=$work/logs/mixed command=(killed $when)
            fill many openib ho --enable-recovery
            c-tests/patience.sh 120 "${whole_job[@]}" "${ranks[@]}" >"$log" 2>&1 </dev/null
            status=$?
            [ "$status" != 124 ] && ! says 'watchdog|Segmentation|panicked|has sent everything' &&
                [ "$(grep -caE 'btl_openib: rank 1 of job [0-9]+ is lost: ' "$log")" = 1 ]
            check "$line" $?
        done
        # Of a name there is one file in a process, and verbs is another name: the host takes devices for both. beside LINE RANK_1 fills
        # `status`: rank 0 has both, and rank 1 what RANK_1 says.
        beside() {
            local at=0 word
            command=("p2p" small)
            fill many openib oo
            for word in "${!ranks[@]}"; do
                case ${ranks[word]} in
                OMPI_MCA_mca_base_component_path=*)
                    ranks[word]=OMPI_MCA_mca_base_component_path=$stock_openib:$root/$work/beside:$stock
                    [ "$at" = 0 ] || ranks[word]="OMPI_MCA_btl=$1"$'\n'${ranks[word]}
                    at=1
                    ;;
                esac
            done
            mapfile -t ranks < <(printf '%s\n' "${ranks[@]}")
            c-tests/patience.sh 180 "${whole_job[@]/#openib,self/openib,verbs,self}" --mca btl_base_verbose 5 "${ranks[@]}" >"$log" 2>&1 </dev/null
            status=$?
        }
        rm -rf "$work/beside" && mkdir -p "$work/beside" && ln -s "$(readlink -f target/mca/mca_btl_verbs.so)" "$work/beside/mca_btl_verbs.so"
        log=$work/logs/beside
        line="verbs over roce, beside Open MPI's own openib, which has taken the device: openib has the peers, and verbs says why"
        if wanted "$line"; then
            beside openib,verbs,self
            [ "$status" = 0 ] && says '^PASS p2p$' && says "btl_verbs: Open MPI's own openib has taken devices in this process" &&
                says 'mca: bml: Using openib btl for send to' && ! says 'mca: bml: Using verbs btl for send to'
            check "$line" $?
        fi
        line="verbs over roce, beside Open MPI's own openib, which the peer has not: verbs has the peer"
        if wanted "$line"; then
            beside verbs,self
            [ "$status" = 0 ] && says '^PASS p2p$' && [ "$(grep -c 'mca: bml: Using verbs btl for send to' "$log")" = 2 ] &&
                ! says "mca: bml: Using openib btl for send to|Open MPI's own openib has taken"
            check "$line" $?
        fi
        line="verbs over roce, openib's wire: who does not speak it says so, and the job ends"
        if wanted "$line"; then
            log=$work/logs/mixed command=(p2p small)
            fill many own ho
            c-tests/patience.sh 60 "${whole_job[@]}" "${ranks[@]}" >"$log" 2>&1 </dev/null
            status=$?
            [ "$status" != 0 ] && [ "$status" != 124 ] && says '^btl_openib: rank 1 of job [0-9]+ is not reached: it speaks openib.s wire'
            check "$line" $?
        fi
    else
        not_ok "openib is there (tests/rig/openib)" "$log"
    fi
fi

# --- ranks that die

[ "$host" = debian12 ] || mpi_compile killed

# launch KIND RANKS "PROGRAM ARGUMENT…" WORD…: a job that need not end well; fills `log`, `status`, and `remaining`, the
# processes that are left of it.
launch() {
    local ranks=$2 pid
    local -a command
    read -ra command <<<"$3"
    over "$1"
    shift 3
    log=$work/logs/launched
    retold launched "$ranks" "$@"
    remaining=
    for pid in $(sed -nE 's/^rank [0-9]+ pid ([0-9]+)$/\1/p' "$log"); do
        c-tests/patience.sh 20 tail -f /dev/null --pid="$pid"
        case $(readlink "/proc/$pid/exe" 2>/dev/null) in */"${command[0]}") remaining="$remaining $pid" ;; esac
    done
}
launched() {
    local ranks=$1
    shift
    c-tests/patience.sh 120 "${there[@]}" mpirun --oversubscribe -n "$ranks" --mca mca_base_component_path "$root/target/mca:$stock" \
        "${quiet[@]}" "${device[@]}" --mca pml ob1 --mca btl verbs,self "${loopback[@]}" "$@" "$root/$work/${command[0]}" \
        "${command[@]:1}" >"$log.raw" 2>&1 </dev/null
    status=$?
    tr -d '\0' <"$log.raw" >"$log"
}

for kind in roce iwarp; do
    for when in start idle transfer collective finalize; do
        line="verbs over $kind, a rank killed ($when): the job ends, and nothing of it stays"
        wanted "$line" || continue
        launch $kind 3 "killed $when"
        [ "$status" != 0 ] && [ "$status" != 124 ] && [ -z "$remaining" ] &&
            [ "$(grep -cE '^rank [0-2] pid [0-9]+$' "$log")" = 3 ] && ! says 'goes on with|watchdog|Segmentation|panicked'
        check "$line${remaining:+: $remaining}" $?
    done
    # An mpirun that lets the survivor live: it is hawser that has to notice.
    for when in receive reading send; do
        ! brief || [ "$when" = reading ] || continue
        line="verbs over $kind, a rank killed ($when), and the launcher says nothing: the other one hears of it"
        wanted "$line" || continue
        launch $kind 2 "killed $when" --enable-recovery
        [ "$status" != 124 ] && [ -z "$remaining" ] && ! says 'watchdog|Segmentation|panicked|has sent everything' &&
            says 'btl_verbs: rank 1 of job [0-9]+ is lost: |rank 0 has (an error|nothing|a message that is right)$'
        check "$line${remaining:+: $remaining}" $?
    done
done

# Who is stopped while others connect, and are to be connected with it, holds up nobody, and has everything afterwards.
for kind in roce iwarp; do
    line="verbs over $kind, 3 ranks, one is stopped: the others connect and talk, and it has all when it goes on"
    wanted "$line" || continue
    over "$kind"
    rm -f "$work/to-be-stopped"
    mpi_job "$line" 3 "stopped $root/$work/to-be-stopped" "${device[@]}" --mca pml ob1 --mca btl verbs,self "${loopback[@]}"
done

# Over iWARP what is sent has gone, whoever takes it: that says nothing of the peer. A file of ours takes the network away.
for kind in roce iwarp; do
    line="verbs over $kind, a network that goes: who sends and waits for nothing hears of it"
    wanted "$line" || continue
    rm -rf "$work/control" && mkdir -p "$work/control"
    launch $kind 2 "killed vain $root/$work/control/link-down.${kind}_0" -x "HAWSER_VERBS_CONTROL=$root/$work/control" \
        --mca btl_verbs_peer_timeout 3000
    [ "$status" != 0 ] && [ "$status" != 124 ] && [ -z "$remaining" ] && ! says 'watchdog|Segmentation|panicked|has sent everything' &&
        says 'btl_verbs: rank 1 of job [0-9]+ is lost: '
    check "$line${remaining:+: $remaining}" $?
done

# --- several ports

# Two devices (BOTH is roce+roce), or the two ports of one (roce:2).
# apart COMMAND…: in a network namespace with two networks, of which nothing has to be named.
networks='ip link set lo up && ip link add e1 type veth peer name e2 && ip addr add 10.97.1.1/24 dev e1 && ip addr add 10.97.2.1/24 dev e2 &&
    ip link set e1 up && ip link set e2 up && exec "$@"'
apart() {
    local host_words=("${there[@]}") loopback=()
    local there=(unshare -n sh -c "$networks" sh "${host_words[@]}")
    "$@"
}
# striped BOTH: long messages go by both ports in equal parts, and short ones by turns.
striped() {
    local line="verbs over $1, 2 ranks: what is put goes by both ports in equal parts, and what is sent by either"
    wanted "$line" || return 0
    over "$1"
    mpi_job "$line" 2 "pinned same 20" "${device[@]}" --mca pml ob1 --mca btl verbs,self --mca btl_verbs_flags send,put
    awk '$1 == "module" && $2 == 0 { all[$3, $4] = $5 } END {
            exit !(all[0, "put_bytes"] > 0 && all[0, "put_bytes"] == all[1, "put_bytes"] && all[0, "num_sends"] > 0 && all[1, "num_sends"] > 0)
        }' "$log" || not_ok "$line: they do" "$log"
    verbs_ledger "$ledger" 2 >"$work/left" || not_ok "$line: nothing is left" "$work/left"
}
# single BOTH: there is a module of either, as striped sees, and no more than one where the user wants one.
single() {
    local line="verbs over $1, 2 ranks: with max_btls 1 one port alone is used"
    wanted "$line" || return 0
    over "$1"
    mpi_job "$line" 2 "pinned same 5" "${device[@]}" --mca pml ob1 --mca btl verbs,self --mca btl_verbs_max_btls 1
    says '^counter 0 num_sends [1-9]' && ! says '^module ' || not_ok "$line: there is one module" "$log"
    verbs_ledger "$ledger" 2 >"$work/left" || not_ok "$line: nothing is left" "$work/left"
}
# fewer BOTH first|second: one process has this port alone.
fewer() {
    local line="verbs over $1, of which one rank has the $2 alone: they use what they have in common, and say nothing" command=$root/$work/bigmsg rank
    local all=first,second one=$2
    wanted "$line" || return 0
    case $1,$2 in
    *:2,first) all=both one=both:1 ;;
    *:2,second) all=both one=both:2 ;;
    esac
    over "$1"
    log=$work/logs/fewer
    rank=("${device[@]}" -n 1 env "OMPI_MCA_mca_base_component_path=$root/target/mca:$stock" "OMPI_MCA_btl_verbs_if_include=")
    c-tests/patience.sh 120 "${there[@]}" mpirun --oversubscribe "${quiet[@]}" --mca pml ob1 --mca btl verbs,self \
        "${rank[@]/%if_include=/if_include=$all}" "$command" 4194304 : "${rank[@]/%if_include=/if_include=$one}" "$command" 4194304 \
        >"$log" 2>&1 </dev/null
    status=$?
    [ "$status" = 0 ] && says '^PASS bigmsg$' && ! says 'is not reached' && verbs_ledger "$ledger" 2 >>"$log"
    check "$line" $?
}
# unplugged BOTH WHAT: this happens to the second device or port in the middle of messages that go by both.
unplugged() {
    local what="the second device" file=$root/$work/control/$2.second line
    case $1,$2 in
    *:2,removed) what="the device" file=${file%second}both ;;
    *:2,*) what="the second port" file=${file%second}both.2 ;;
    esac
    line="verbs over $1, in the middle of long messages $what is lost ($2): who loses whom is told, and the job ends"
    wanted "$line" || return 0
    rm -rf "$work/control" && mkdir "$work/control"
    launch "$1" 2 "killed unplugged $file" -x "HAWSER_VERBS_CONTROL=$root/$work/control" \
        --mca btl_verbs_flags send,put --mca btl_verbs_ib_timeout 12 --mca btl_verbs_peer_timeout 3000
    [ "$status" != 0 ] && [ "$status" != 124 ] && [ -z "$remaining" ] && [ -e "$work/control/${file##*/}" ] &&
        ! says 'goes on with|watchdog|Segmentation|panicked' &&
        says 'btl_verbs: rank [01] of job [0-9]+ is lost: (the device is gone|the peer does not answer|the peer has ended|the connection does not)'
    check "$line${remaining:+: $remaining}" $?
}
# failing BOTH PORT: messages go by this one of two ports, and the device of one process fails, which it says once, whichever
# port's it is that hears it. Over RoCE the process's connection to itself may be lost before.
failing() {
    local line="verbs over $1, messages go by port $2 alone, and the device fails: the peer is lost for that" command=$root/$work/killed rank
    wanted "$line" || return 0
    rm -rf "$work/control" && mkdir "$work/control"
    over "$1"
    log=$work/logs/failing
    rank=("${device[@]}" -n 1 env "OMPI_MCA_mca_base_component_path=$root/target/mca:$stock" "OMPI_MCA_btl_verbs_if_include=")
    c-tests/patience.sh 120 "${there[@]}" mpirun --oversubscribe "${quiet[@]}" --mca pml ob1 --mca btl verbs,self \
        "${rank[@]/%if_include=/if_include=both}" "HAWSER_VERBS_CONTROL=$root/$work/control" "$command" unplugged "$root/$work/control/failed.both" : \
        "${rank[@]/%if_include=/if_include=both:$2}" "$command" unplugged "$root/$work/control/failed.both" >"$log" 2>&1 </dev/null
    status=$?
    [ "$status" != 0 ] && [ "$status" != 124 ] && ! says 'goes on with|watchdog|Segmentation|panicked' &&
        says 'btl_verbs: rank 1 of job [0-9]+ is lost: the device is gone'
    check "$line" $?
}
# halved BOTH WHAT [TOO]: of two devices what is so called fails at the second, in one process, in the middle of messages that go by
# both; and TOO happens to it at once.
halved() {
    local too=${3-} command=$root/$work/killed rank line what=$2
    line="verbs over $1, in the middle of long messages the second device's queues fail in one process ($2${too:+, $too}): who loses whom is told, and the job ends"
    wanted "$line" || return 0
    rm -rf "$work/control" && mkdir "$work/control"
    # One file is made; what leads to it is there when it is.
    if [ -n "$too" ]; then what=$too && ln -s "$too.second" "$work/control/$2.second"; fi
    over "$1"
    log=$work/logs/halved
    rank=("${device[@]}" -n 1 env "OMPI_MCA_mca_base_component_path=$root/target/mca:$stock")
    c-tests/patience.sh 120 "${there[@]}" mpirun --oversubscribe "${quiet[@]}" --mca pml ob1 --mca btl verbs,self --mca btl_verbs_flags send,put \
        "${rank[@]}" "HAWSER_VERBS_CONTROL=$root/$work/control" "$command" unplugged "$root/$work/control/$what.second" : \
        "${rank[@]}" "$command" unplugged "$root/$work/control/$what.second" >"$log" 2>&1 </dev/null
    status=$?
    [ "$status" != 0 ] && [ "$status" != 124 ] && [ -e "$work/control/$2.second" ] && ! says 'goes on with|watchdog|Segmentation|panicked|stand-in' &&
        ! says 'btl_verbs: first:1: ' &&
        if [ -n "$too" ]; then
            says 'btl_verbs: rank [01] of job [0-9]+ is lost: '
        else
            says 'btl_verbs: second:1: a completion queue or a shared receive queue has failed' &&
                says "btl_verbs: rank (1 of job [0-9]+ is lost: a queue of this process's device has failed|0 of job [0-9]+ is lost: )"
        fi
    check "$line" $?
}
if [ "$host" = debian12 ]; then
    for both in roce+roce iwarp+iwarp roce+iwarp; do
        for what in queues-failed shared-failed; do apart halved $both $what; done
        for too in removed failed port-down; do apart halved $both queues-failed $too; done
        apart striped $both
        apart run $both 2 "bigmsg 4194304"
        for what in removed link-down; do apart unplugged $both $what; done
    done
    apart single roce+roce
    apart run roce+iwarp 4 coll
    apart run roce+iwarp 2 "threads 100"
    for port in first second; do apart fewer roce+iwarp $port; done
    for both in roce:2 iwarp:2; do
        apart run $both 2 "bigmsg 4194304"
        apart run $both 4 coll
        for port in first second; do apart fewer $both $port; done
        for what in removed port-down; do apart unplugged $both $what; done
    done
    for port in 1 2; do apart failing iwarp:2 $port; done
fi
for both in roce:2 iwarp:2; do
    apart striped $both
    apart unplugged $both link-down
done

# While the host reads a message, in its callback, its sender is killed and what it came by goes: the bytes stay until they are read.
# What keeps them does not know its host.
if [ "$host" = debian12 ]; then
    gcc -O2 -Wall -Wextra -Werror -fPIC -shared c-tests/verbs/preload/reading.c -o "$work/reading.so" -ldl >"$log" 2>&1 ||
        give_up "what is preloaded compiles"
    for kind in roce iwarp; do
        line="verbs over $kind, a rank killed while its message is read: its bytes stay, and the other one hears of it"
        wanted "$line" || continue
        launch $kind 2 "killed marked" --enable-recovery -x "LD_PRELOAD=$root/$work/reading.so"
        [ "$status" != 124 ] && [ -z "$remaining" ] && says '^reading: the sender is killed$' &&
            says 'btl_verbs: rank 1 of job [0-9]+ is lost: ' && ! says 'watchdog|Segmentation|panicked|has changed|goes on'
        check "$line${remaining:+: $remaining}" $?
    done
fi

# --- messages that are none

# The first message says where a peer's limits are to be written; the others are of all kinds. A queue that there is not, and
# lengths that are not the message's; of the first one a tag, another kind, a queue and bytes that mean nothing, an address where
# no words are, one of memory that is not the peer's, a key that is not its, and a limit beyond all buffers. Whoever receives it ends the connection and says why; the other one hears of the end, and may
# have said that and ended the job before.
for what in "roce message:1:1@0" "roce message:12:4@1" "iwarp message:9:7@0" "iwarp message:1:4@1" "roce message:1:0@1" \
    "roce message:1:8@0" "roce message:1:9@1" "roce message:1:10@0" "roce message:1:16@1" "roce message:1:23@1" \
    "roce message:1:25@1"; do
    read -r kind fault <<<"$what"
    line="verbs over $kind, what is received is no message ($fault): that ends the connection, and the user is told"
    wanted "$line" || continue
    launch $kind 2 "p2p small" -x "HAWSER_VERBS_FAULTS=$fault"
    receiver=${fault#*@}
    [ "$status" != 0 ] && [ "$status" != 124 ] && ! says '^PASS|watchdog|Segmentation|panicked|stand-in' &&
        says "btl_verbs: rank ($((1 - receiver)) of job [0-9]+ is lost: (the peer says what means nothing|the connection does not work any more)|$receiver of job [0-9]+ is lost: (the peer has ended the connection, or has died|the connection does not work any more))"
    check "$line" $?
done
# A completion queue that cannot be read, or that its device says has failed, as of a shared receive queue: what was in it nobody knows.
# Some fail while a connection is made, by whichever side.
half_up=rdma_accept:1:queues@1,rdma_connect:2:queues
for what in "roce ibv_poll_cq:1+:12" "iwarp ibv_poll_cq:1+:5" "roce ibv_poll_cq:7+:5" "iwarp ibv_poll_cq:20+:12" "roce ibv_poll_cq:20:12" \
    "roce overrun:1:0" "iwarp overrun:1:0" "roce overrun:30:0" "iwarp overrun:30:0" "roce overrun:30:lost" "iwarp overrun:9:lost" \
    "roce shared-queue:3:0" "iwarp shared-queue:1:0" "roce overrun:9:lost --mca btl_verbs_wire openib" \
    "roce ibv_poll_cq:30+:5 --mca btl_verbs_wire openib" "roce $half_up" "iwarp $half_up" "roce $half_up --mca btl_verbs_wire openib" \
    "roce ibv_post_srq_recv:1:queues" "iwarp ibv_post_srq_recv:1:queues"; do
    read -r kind fault options <<<"$what"
    line="verbs over $kind, a queue that rank 1 has for all fails ($fault${options:+, ${options#--mca }}): the job ends, and the user hears that"
    wanted "$line" || continue
    launch $kind 2 "p2p small" -x "HAWSER_VERBS_FAULTS=$fault@1" $options
    [ "$status" != 0 ] && [ "$status" != 124 ] && [ -z "$remaining" ] && ! says '^PASS|watchdog|Segmentation|panicked|stand-in' &&
        says "btl_verbs: ${kind}_0:1: a completion queue or a shared receive queue has failed" &&
        says "btl_verbs: rank (0 of job [0-9]+ is lost: a queue of this process's device has failed|1 of job [0-9]+ is lost: )" &&
        ! says 'btl_verbs: rank 0 of job [0-9]+ is lost: the peer'
    check "$line${remaining:+: $remaining}" $?
done
# Of several threads each may be the one that reads, or that is told. Not on Debian 13: there ob1 takes the ways to a lost peer away
# while another thread is about to send by them, which then reads through a null pointer (mca_pml_ob1_isend).
for what in "roce overrun:400:lost" "iwarp overrun:400:0" "roce ibv_poll_cq:300+:5" "iwarp shared-queue:200:0"; do
    [ "$host" = debian12 ] || break
    read -r kind fault <<<"$what"
    line="verbs over $kind, a queue that rank 1 has for all fails while four threads use it ($fault): the job ends, and the user hears that"
    wanted "$line" || continue
    launch $kind 2 "threads 100" -x "HAWSER_VERBS_FAULTS=$fault@1"
    [ "$status" != 0 ] && [ "$status" != 124 ] && ! says '^PASS|watchdog|Segmentation|panicked|stand-in' &&
        says "btl_verbs: ${kind}_0:1: a completion queue or a shared receive queue has failed" &&
        says "btl_verbs: rank (0 of job [0-9]+ is lost: a queue of this process's device has failed|1 of job [0-9]+ is lost: )"
    check "$line" $?
done
# Who is sent to for the first time is met by no port whose queue has failed: Open MPI ends the job for that, before there is any pass
# in which the user could hear why.
line="verbs over roce, 3 nodes: who is sent to first when a queue has failed is not reached, and the user hears why"
if [ "$host" = debian12 ] && wanted "$line"; then
    several_nodes
    launch roce 3 "endings stranger" "${of_nodes[@]}" --mca mpi_add_procs_cutoff 0
    [ "$status" != 0 ] && [ "$status" != 124 ] && ! says '^PASS|goes on|watchdog|Segmentation|panicked|stand-in' &&
        says 'btl_verbs: roce_0:1: a completion queue or a shared receive queue has failed'
    check "$line" $?
fi
# When everybody has had what he wants a queue that fails takes nothing from anybody. Who has not closed a peer then does not know that,
# and loses it: the job passes, and nothing is left, or it ends and says why. It never waits.
# lastly "LINE" KIND RANKS "PROGRAM ARGUMENT…" [OPTION …]
lastly() {
    local line="verbs over $2, $3 ranks: $1, a queue of rank 1's fails: the job passes, or ends and says why" kind=$2 ranks=$3 program=$4
    shift 4
    wanted "$line" || return 0
    launch "$kind" "$ranks" "$program" "$@"
    [ "$status" != 124 ] && ! says 'watchdog|Segmentation|panicked|stand-in' &&
        if [ "$status" != 0 ]; then
            says 'a completion queue or a shared receive queue has failed' && says 'btl_verbs: rank [0-9]+ of job [0-9]+ is lost: '
        else
            says "^PASS ${program%% *}\$" && verbs_ledger "$ledger" "$ranks" >>"$log"
        fi
    check "$line ($status)" $?
}
for kind in roce iwarp; do
    # Both sides have closed what is disconnected first, and nobody loses anybody. Of more ranks there are others that are not closed.
    for which in 1 2 4; do run $kind 2 "p2p small" -x "HAWSER_VERBS_FAULTS=rdma_disconnect:$which:queues@1"; done
    lastly "when it disconnects first" $kind 4 "coll small" -x HAWSER_VERBS_FAULTS=rdma_disconnect:1:queues@1
    for ranks in 2 4; do lastly "before it calls MPI_Finalize" $kind $ranks "endings last"; done
    # With the last of its work, or before: there are as many posts as in a job that nothing happens to, by and large.
    posts=
    for behind in 0 1 2 3 4 6 8 12; do
        line="with its last post but $behind"
        wanted "verbs over $kind, 2 ranks: $line, a queue of rank 1's fails: the job passes, or ends and says why" || continue
        if [ -z "$posts" ]; then
            launch $kind 2 "p2p small"
            posts=$(awk '$1 == "call" && $2 == "ibv_post_send" && (!least || $3 < least) { least = $3 } END { print least + 0 }' "$ledger".*)
        fi
        lastly "$line" $kind 2 "p2p small" -x "HAWSER_VERBS_FAULTS=ibv_post_send:$((posts - behind)):queues@1"
    done
done
# Openib lends no credits for shared queues: messages may meet no buffer there, and are sent again.
line="verbs over roce, wire openib, 2 ranks: when it disconnects first, a queue of rank 1's fails: the job passes, and nothing is left"
if wanted "$line"; then
    over roce
    mpi_job "$line" 2 "p2p small" "${device[@]}" --mca pml ob1 --mca btl verbs,self "${loopback[@]}" -x HAWSER_VERBS_FAULTS=rdma_disconnect:1:queues@1 \
        --mca btl_verbs_wire openib
    verbs_ledger "$ledger" 2 >"$work/left" || not_ok "$line: nothing is left" "$work/left"
fi
# What both say while they connect: not in our words, in those of another version, of another kind, queue, life, process, endpoint,
# attempt, or with other queues.
for what in "roce 1:0" "iwarp 1:4" "roce 1:6" "iwarp 1:7" "roce 1:8" "iwarp 1:16" "roce 1:24" "roce 1:32" "iwarp 1:36" "roce 1:40" "iwarp 1:49" \
    "iwarp 2:0" "roce 2:7"; do
    read -r kind fault <<<"$what"
    line="verbs over $kind, what comes with a request or its answer is garbled ($fault): it is asked again, or the user is told"
    wanted "$line" || continue
    launch "$kind" 2 "p2p small" -x "HAWSER_VERBS_FAULTS=private-data:$fault"
    [ "$status" != 124 ] && [ -z "$remaining" ] && ! says 'watchdog|Segmentation|panicked|stand-in' &&
        if [ "$status" = 0 ]; then says '^PASS p2p$'; else says 'btl_verbs: rank [01] of job [0-9]+ is lost: '; fi
    check "$line" $?
done
# Who has sent it is out of MPI: why the connection ends is told, whatever happens meanwhile.
for kind in roce iwarp; do
    line="verbs over $kind, what is received of a process that computes is no message: the user hears that"
    wanted "$line" || continue
    launch $kind 2 "killed receive" -x HAWSER_VERBS_FAULTS=message:3:4@0
    [ "$status" != 124 ] && [ -z "$remaining" ] && ! says 'watchdog|Segmentation|panicked|stand-in' &&
        says 'btl_verbs: rank 1 of job [0-9]+ is lost: the peer says what means nothing'
    check "$line${remaining:+: $remaining}" $?
done

# --- every call and event

# Whatever fails, and whenever: the job passes, or ends and says why, and nothing is left of it. Each call and each event that rank 1 has
# in a job that nothing happens to, in each of its first turns, and in all from one on; but for what ends something, and requests that
# are lost: an id is left then, and the stand-in ends the process for it. What is received, and how work ends, has rows of its own.
sweep() { # KIND
    local kind=$1 line name count which fault
    # Which there are is to be known before any can be wanted.
    [ ${#words[@]} = 0 ] || [[ "${words[*]}" == *"rank 1 has"* ]] || return 0
    line="verbs over $kind, the calls and events of a job are known"
    log=$work/logs/known
    launch "$kind" 2 "p2p small"
    awk '$1 == "call" && $3 > most[$2] { most[$2] = $3 } END { for (name in most) print name, most[name] }' "$work/ledgers/$jobs".* | sort >"$work/known"
    [ "$status" = 0 ] && [ "$(wc -l <"$work/known")" -gt 30 ]
    check "$line" $?
    while read -r -u 9 name count; do
        case $name in *destroy* | *dealloc* | *dereg* | *close* | *free* | *ack* | message | private-data | *-completion | overrun | shared-queue) continue ;; esac
        for which in 1 2 3 4 5 6 1+ 3+; do
            [ "${which%+}" -le "$count" ] || continue
            case $name:$which in
            CONNECT_REQUEST:*) fault=$name:$which:110 ;;
            [A-Z]*:2) fault=$name:$which:lost ;;
            [A-Z]*) fault=$name:$which:110 ;;
            *) fault=$name:$which:12 ;;
            esac
            line="verbs over $kind, rank 1 has $fault: the job passes, or ends and says why"
            wanted "$line" || continue
            launch "$kind" 2 "p2p small" -x "HAWSER_VERBS_FAULTS=$fault@1" --mca btl_verbs_peer_timeout 5000
            [ "$status" != 124 ] && [ -z "$remaining" ] && ! says 'watchdog|Segmentation|panicked|stand-in' &&
                if [ "$status" = 0 ]; then says '^PASS p2p$'; else says 'btl_verbs: '; fi
            check "$line${remaining:+: $remaining} ($status)" $?
        done
    done 9<"$work/known"
}
if whole; then
    sweep roce
    sweep iwarp
fi

# --- nothing to use

there_is=no
[ -z "$(ls /sys/class/infiniband 2>/dev/null)" ] || there_is=yes

# besides WORD…: a job that works by other means, TCP over the loopback interface if it is told to use TCP; fills `log`, without
# the zeros that PRRTE puts behind help texts, and `status`.
besides() {
    c-tests/patience.sh 120 "${there[@]}" mpirun --oversubscribe -n 2 --mca mca_base_component_path "$root/target/mca:$stock" \
        "${quiet[@]}" --mca pml ob1 --mca btl_tcp_if_include lo "$@" "$root/$work/p2p" small >"$log.raw" 2>&1 </dev/null
    status=$?
    tr -d '\0' <"$log.raw" >"$log"
}

# missing LINE TEXT WORD…: the job works by other means, and says this.
missing() {
    local line=$1 text=$2
    shift 2
    wanted "verbs, $line" || return 0
    log=$work/logs/missing
    besides "$@"
    [ "$status" = 0 ] && says '^PASS p2p$' && if [ -n "$text" ]; then says "$text"; else ! says '\] hawser: |btl_verbs'; fi
    check "verbs, $line" $?
}
over roce
missing "without devices it declines, and says nothing" ""
missing "who asked for it hears why there is none" 'btl_verbs: .*RDMA' --mca btl verbs,tcp,self
# lacking LINE TEXT WORD…: both processes lack this, of which one line tells, and have each other by TCP.
lacking() {
    local line="verbs, $1" text=$2
    shift 2
    wanted "$line" || return 0
    log=$work/logs/lacking
    retold besides "${device[@]}" --mca btl verbs,tcp,self "${loopback[@]}" --mca btl_base_verbose 5 "$@"
    [ "$status" = 0 ] && says '^PASS p2p$' && says "^btl_verbs: $text" && [ "$(grep -ac 'btl_verbs: ' "$log")" = 1 ] && by tcp
    check "$line" $?
}
# by BTL: either of two processes has the other by this one alone.
by() { [ "$(sed -nE 's/.*mca: bml: Using ([a-z]+) btl for send to .*/\1/p' "$log" | grep -vx self | tr '\n' ' ')" = "$1 $1 " ]; }
# A file that is no library is found before the one that is there; libfabric, which comes with Open MPI 5.0, needs a whole one.
if [ "$host" = debian12 ]; then
    mkdir -p "$work/without" && cp "$work/lib/libibverbs.so.1" "$work/without" && : >"$work/without/librdmacm.so.1" || give_up "a folder without librdmacm"
    lacking "a library that is missing is told of, once" 'librdmacm\.so\.1 cannot be loaded \(.*\); install it, .* librdmacm1\.' \
        -x "LD_LIBRARY_PATH=$root/$work/without"
fi
lacking "a kernel without a connection manager is told of, once" 'there is no connection manager for RDMA \(.*; the kernel.s module rdma_ucm\)\.' \
    -x 'HAWSER_VERBS_FAULTS=rdma_create_event_channel:*:19'
for what in ibv_alloc_pd:"protection domain" ibv_create_srq:"shared receive queue"; do
    lacking "no memory for a ${what#*:} is told of, once" "roce_0:1: no ${what#*:}: out of resources; the limit of locked memory .* \(.ulimit -l.\)\." \
        -x "HAWSER_VERBS_FAULTS=${what%%:*}:*:12"
done
missing "devices that cannot be listed are told of, and why" 'btl_verbs: the RDMA devices of this machine cannot be listed \(.*pen files' \
    "${device[@]}" --mca btl verbs,tcp,self -x HAWSER_VERBS_FAULTS=ibv_get_device_list:1:24
missing "a queue that makes no sense is told" 'btl_verbs_receive_queues: X,128,256: XRC queues \(X\) are not supported' \
    "${device[@]}" --mca btl verbs,tcp,self "${loopback[@]}" --mca btl_verbs_receive_queues X,128,256
# What a device has not is known before there is a message that wants it.
over iwarp
missing "sends that are more than a queue pair has are told" \
    'btl_verbs: iwarp_0:1: a queue pair of its has 32768 sends at most, and `P,128,16384,16000,1,16384` asks for more' "${device[@]}" \
    --mca btl verbs,tcp,self "${loopback[@]}" --mca btl_verbs_receive_queues P,128,16384,16000,1,16384:P,65536,64
over roce
missing "work that is more than a completion queue has room for is told" \
    'btl_verbs: roce_0:1: a completion queue of its has room for 32767 of a queue pair.s at most, and `P,65536,16384,' "${device[@]}" \
    --mca btl verbs,tcp,self "${loopback[@]}" --mca btl_verbs_receive_queues P,65536,16384
# Of a kernel that has devices, as far as who has not asked for them looks.
ordinary=("${there[@]}")
has_devices=(unshare -m sh -c 'mount -t tmpfs none /sys/class && mkdir -p /sys/class/infiniband/roce_0 && exec "$@"' sh)
if [ "$host" = debian12 ] && unshare -m true 2>/dev/null; then
    there+=("${has_devices[@]}")
    missing "a list of networks that makes no sense is told of to who has not asked, too" \
        'btl_verbs: ipaddr_include or ipaddr_exclude: .*10\.0\.0\.0/999' "${device[@]}" --mca btl_verbs_ipaddr_include 10.0.0.0/999
    there=("${ordinary[@]}")
fi
missing "a device and a port that are not there are told of" 'btl_verbs: there is no device or port roce_0:7, roce_1:1 \(devices: roce_0\)' \
    "${device[@]}" --mca btl verbs,self "${loopback[@]}" --mca btl_verbs_if_include roce_0:1,roce_0:7,roce_1:1
missing "a port is named by its GID" 'btl:verbs: roce_0:1 is not used: it is in if_exclude' "${device[@]}" --mca btl verbs,tcp,self "${loopback[@]}" \
    --mca btl_verbs_if_exclude ::ffff:127.0.0.1 --mca btl_verbs_verbose 1
missing "and a GID that is nobody's is told of" 'btl_verbs: there is no device or port ::ffff:127\.9\.9\.9, fe80::7 \(devices: roce_0\)' \
    "${device[@]}" --mca btl verbs,self "${loopback[@]}" --mca btl_verbs_if_include ::ffff:127.0.0.1,::ffff:127.9.9.9,fe80::7
missing "a port that does not say how it is is not said to be down" 'no port of roce_0 can be used: roce_0:1: its state cannot be had \(.*\)' \
    "${device[@]}" --mca btl verbs,tcp,self "${loopback[@]}" -x HAWSER_VERBS_FAULTS=ibv_query_port:*:5
missing "and a network that is nobody's" 'btl_verbs: no interface is of 203\.0\.113\.0/24, nowhere, of ipaddr_include or ipaddr_exclude' \
    "${device[@]}" --mca btl verbs,self --mca btl_verbs_ipaddr_include 127.0.0.0/8,203.0.113.0/24,nowhere
missing "who asks for it under both names has it under one, and hears that" \
    'btl_(verbs: this process has the component as openib|openib: this process has the component as verbs), and cannot have it under both names: ask for' \
    "${device[@]}" --mca btl openib,verbs,self "${loopback[@]}" --mca btl_openib_ipaddr_include 127.0.0.0/8
missing "a device that is excluded is not used" 'btl:verbs: roce_0:1 is not used: it is in if_exclude' \
    "${device[@]}" --mca btl verbs,tcp,self "${loopback[@]}" --mca btl_verbs_if_exclude roce_0 --mca btl_verbs_verbose 1

missing "whether it says so may be a word" 'btl:verbs: roce_0:1 is not used: it is in if_exclude' \
    "${device[@]}" --mca btl verbs,tcp,self "${loopback[@]}" --mca btl_verbs_if_exclude roce_0 --mca btl_verbs_verbose yes

# --- beside other transports

# chosen LINE BTL WORD…: each of two processes has a device and could have the other by verbs, and has it by this BTL alone.
chosen() {
    local line="verbs over roce, $1" by=$2
    shift 2
    wanted "$line" || return 0
    over roce
    log=$work/logs/chosen
    besides "${device[@]}" "${loopback[@]}" --mca btl_base_verbose 5 "$@"
    [ "$status" = 0 ] && says '^PASS p2p$' && by "$by" && [ "$(cat "$ledger".* | grep -c '^call rdma_listen ')" = 2 ]
    check "$line" $?
    verbs_ledger "$ledger" 2 >"$work/left" || not_ok "$line: nothing is left" "$work/left"
}
# Who names no transport. Debian's own settings leave out `uct`, `openib` and `ofi`, and so does who leaves out more.
if [ "$host" = debian12 ] && unshare -m true 2>/dev/null; then
    there+=("${has_devices[@]}")
    chosen "no transport is named: shared memory is preferred" vader
    chosen "no transport is named, and shared memory left out: verbs is used, and not tcp" verbs --mca btl ^vader,uct,openib,ofi
    there=("${ordinary[@]}")
fi
chosen "verbs is named, and tcp first: verbs is used, and not tcp" verbs --mca btl tcp,verbs,self
chosen "verbs is named, and usnic first: verbs is used, and not usnic" verbs --mca btl usnic,verbs,self --mca btl_usnic_if_include lo
chosen "with an exclusivity below tcp's, tcp is used" tcp --mca btl tcp,verbs,self --mca btl_verbs_exclusivity 0
chosen "with an exclusivity below usnic's, usnic is used" usnic --mca btl usnic,verbs,self --mca btl_usnic_if_include lo --mca btl_verbs_exclusivity 0

# --- what is said of openib

# What is said of openib and does not fit here: there is nothing but verbs to go on with.
# inherits LINE TEXT [OPTION …]: as missing.
inherits() {
    local line=$1 text=$2
    shift 2
    missing "what is said of openib: $line" "$text" "${device[@]}" --mca btl verbs,self "${loopback[@]}" "$@"
}
inherits "a number that does not fit is told, and ours holds" \
    'btl_openib_cq_size is 9; it must be 64 to [0-9]+: not taken over; btl_verbs_cq_size stays 8192' --mca btl_openib_cq_size 9
inherits "a text that is no number" 'btl_openib_poll_cq_batch is many, which is no number: not taken over; btl_verbs_poll_cq_batch stays 32' \
    --mca btl_openib_poll_cq_batch many
inherits "a word that is none" 'btl_openib_allow_ib is perhaps, which is neither true nor false: not taken over; btl_verbs_allow_ib stays false' \
    --mca btl_openib_allow_ib perhaps
inherits "queues that do not fit" 'btl_openib_receive_queues: X,128,256: XRC queues \(X\) are not supported.*: not taken over; btl_verbs_receive_queues stays P,' \
    --mca btl_openib_receive_queues X,128,256:S,65536,256
inherits "queues that are too short" 'btl_openib_receive_queues has no buffers of more than 4096 bytes, and eager_limit is 12288: not taken over' \
    --mca btl_openib_receive_queues P,4096,64
inherits "words that there are none of, where there are words" \
    'btl_openib_flags is send,bogus, which is no list of what a byte transport can do: not taken over; btl_verbs_flags stays send,put,get,atomics,fetching-atomics' \
    --mca btl_openib_flags send,bogus
inherits "flags that are a negative number" 'btl_openib_flags is -1; it must be 0 to 2147483647: not taken over' --mca btl_openib_flags -1
inherits "all of several is told" 'btl_openib_ib_timeout is 99; it must be 1 to 31: not taken over' \
    --mca btl_openib_cq_size 9 --mca btl_openib_poll_cq_batch many --mca btl_openib_ib_timeout 99
inherits "an excluding list gives way to an including one of verbs" "" --mca btl_openib_ipaddr_exclude 127.0.0.0/8
inherits "an including list gives way to an excluding one of verbs" "" \
    --mca btl_openib_if_include elsewhere_0 --mca btl_verbs_if_exclude elsewhere_1 --mca btl_verbs_warn_nonexistent_if false
inherits "two lists that exclude each other" 'btl_openib_if_include and btl_openib_if_exclude exclude each other: not taken over' \
    --mca btl_openib_if_include roce_0 --mca btl_openib_if_exclude roce_0
missing "what is said of verbs itself is refused, whatever is said of openib" 'btl_verbs_cq_size is 9; it must be 64 to' \
    "${device[@]}" --mca btl verbs,tcp,self "${loopback[@]}" --mca btl_verbs_cq_size 9 --mca btl_openib_cq_size 4096

# All that openib has, as it is without anybody's saying.
defaults=c-tests/verbs/openib-defaults.conf
stated=()
while IFS='=' read -r name value; do stated+=(--mca "${name% }" "${value# }"); done <$defaults
[ "${#stated[@]}" -ge 200 ] || give_up "$defaults has the parameters of openib"
inherits "all of its defaults do, and nobody hears of it" "" "${stated[@]}"
line="verbs, the defaults of openib are those of the host's"
if [ "$host" = debian12 ] && wanted "$line"; then
    log=$work/logs/defaults
    ompi_info --parsable --param btl openib --level 9 2>&1 |
        sed -nE 's/^mca:btl:openib:param:(btl_openib_[a-z_]+):value:"?([^"]*)"?$/\1 = \2/p' | sed 's/ $//' | diff "$defaults" - >"$log" 2>&1
    check "$line" $?
fi

# doctor LINE TEXT VARIABLE=VALUE…: what hawser-info says of the devices, with these. libfabric, which it asks for its
# providers, would use devices in ways that are not in the stand-in: on debian12 it finds a file that is none; on debian13,
# whose ompi_info is linked with it, it gets a provider that does without devices.
doctor() {
    local line=$1 text=$2
    shift 2
    wanted "verbs, $line" || return 0
    log=$work/logs/doctor
    c-tests/patience.sh 120 "${there[@]}" env HOME="$root/$work" OMPI_MCA_mca_base_component_path="$root/target/mca:$stock" "$@" \
        "$root/target/release/hawser-info" --doctor >"$log" 2>&1 </dev/null
    says "$text"
    check "verbs, $line" $?
}
mkdir -p "$work/none" && rm -f "$work/none"/* && { [ "$host" != debian12 ] || : >"$work/none/libfabric.so.1"; }
standin=(FI_PROVIDER=tcp "LD_LIBRARY_PATH=$root/$work/none:$root/$work/lib" "HAWSER_VERBS_DEVICES=first=127.0.0.1/roce,second=127.0.0.2/iwarp,elsewhere=192.0.2.1")
named=OMPI_MCA_btl_verbs_ipaddr_include=127.0.0.0/8
doctor "hawser-info says which device is used" '^good  RDMA devices: first:1 \(RoCE at lo .*127\.0\.0\.1.*\) is used by btl verbs' "${standin[@]}" $named
doctor "and which has no address here" '^note  RDMA devices: elsewhere is not used: it has no address' "${standin[@]}" $named
doctor "and which the user has excluded" '^note  RDMA devices: first:1 .* is not used: it is in if_exclude' "${standin[@]}" $named OMPI_MCA_btl_verbs_if_exclude=first
apart doctor "and of how many, where the user wants fewer" '^note  RDMA devices: (first|second):1 .* is not used: 1 before it are used, and there are no more \(max_btls\)' "${standin[@]}" HAWSER_VERBS_DEVICES=first=10.97.1.1,second=10.97.2.1 OMPI_MCA_btl_verbs_max_btls=1
doctor "and which does not speak the wire that is wanted" '^note  RDMA devices: first:1 \(iWARP .* is not used: openib.s wire is only spoken over RoCE' "${standin[@]}" $named HAWSER_VERBS_DEVICES=first=127.0.0.1/iwarp OMPI_MCA_btl_verbs_wire=openib
doctor "and that none is as the component is set" '^note  RDMA devices: first:1 .* is not used, and could be: btl_verbs_receive_queues: X,1,1: ' "${standin[@]}" $named OMPI_MCA_btl_verbs_receive_queues=X,1,1
doctor "and that none is where the component is left out" '^note  RDMA devices: first:1 .* is not used, and could be: .* says btl = \^verbs, which leaves it out' "${standin[@]}" $named OMPI_MCA_btl=^verbs
doctor "and what makes no sense" '^bad   RDMA devices: .*999' "${standin[@]}" OMPI_MCA_btl_verbs_ipaddr_include=10.0.0.0/999
doctor "what is said of openib's devices holds there" '^note  RDMA devices: first:1 .* is not used: it is in if_exclude' "${standin[@]}" $named OMPI_MCA_btl_openib_if_exclude=first
doctor "but where verbs has the opposite" '^good  RDMA devices: first:1 .* is used by btl verbs' "${standin[@]}" $named OMPI_MCA_btl_openib_if_exclude=first OMPI_MCA_btl_verbs_if_include=first
doctor "and what does not fit is told, and is not bad" '^note  settings: btl_openib_cq_size is 9; it must be 64 to [0-9]+: not taken over; btl_verbs_cq_size stays 8192' "${standin[@]}" $named OMPI_MCA_btl_openib_cq_size=9
doctor "and what means nothing" '^note  settings: btl_openib_allow_ib is perhaps, which is neither true nor false: not taken over; btl_verbs_allow_ib stays false' "${standin[@]}" $named OMPI_MCA_btl_openib_allow_ib=perhaps
doctor "of which what is said of verbs itself is" '^bad   settings: btl_verbs_cq_size is 9; it must be 64 to' "${standin[@]}" $named OMPI_MCA_btl_openib_cq_size=4096 OMPI_MCA_btl_verbs_cq_size=9
doctor "and that they cannot be listed" '^bad   RDMA devices: the RDMA devices of this machine cannot be listed \(out of resources\), and btl verbs is not used' \
    "${standin[@]}" $named HAWSER_VERBS_FAULTS=ibv_get_device_list:*:12
[ "$there_is" = yes ] || doctor "and that there is none" '^good  RDMA devices: none here' HAWSER_VERBS_DEVICES=
of_two=("${standin[@]/%first=*/both=10.97.1.1+10.97.2.1}")
rm -rf "$work/control" && mkdir "$work/control" && : >"$work/control/port-down.both.2"
is_down=HAWSER_VERBS_CONTROL=$root/$work/control
apart doctor "of two ports the first is used" '^good  RDMA devices: both:1 \(RoCE at e1 .*10\.97\.1\.1.*\) is used by btl verbs' "${of_two[@]}"
apart doctor "of two ports the second is used too" '^good  RDMA devices: both:2 \(RoCE at e2 .*10\.97\.2\.1.*\) is used by btl verbs' "${of_two[@]}"
apart doctor "of two ports the user has excluded one" '^note  RDMA devices: both:2 .* is not used: it is in if_exclude' "${of_two[@]}" OMPI_MCA_btl_verbs_if_exclude=both:2
apart doctor "of two ports one is down" '^note  RDMA devices: both:2 .* is not used: it is down' "${of_two[@]}" "$is_down"
apart doctor "of two ports the other is used then" '^good  RDMA devices: both:1 .* is used by btl verbs' "${of_two[@]}" "$is_down"

# params LINE TEXT OTHER VARIABLE=VALUE…: what hawser-info says of a parameter of verbs, and of its value.
params() {
    local line=$1 text=$2 other=$3
    shift 3
    wanted "verbs, $line" || return 0
    log=$work/logs/params
    "${there[@]}" env HOME="$root/$work" "$@" "$root/target/release/hawser-info" --params btl_verbs >"$log" 2>&1 </dev/null
    says "$text" && says "$other"
    check "verbs, $line" $?
}
cq_size=OMPI_MCA_btl_openib_cq_size
params "hawser-info lists what is said of openib" '^  btl_verbs_cq_size = 4k$' "; by the variable $cq_size; default 8192\$" $cq_size=4k
params "and what of it does not hold" '^  btl_verbs_cq_size = 8192$' "; not by the variable $cq_size\$" $cq_size=9
params "and why" '^  btl_verbs_cq_size = 8192$' '^ +btl_openib_cq_size is nine, which is no number: not taken over' $cq_size=nine
params "and what is said of verbs before it" '^  btl_verbs_cq_size = 128$' '; by the variable OMPI_MCA_btl_verbs_cq_size; default' $cq_size=9 OMPI_MCA_btl_verbs_cq_size=128
params "and where it may be said" '^  btl_verbs_cq_size = 8192$' '^ +also set by btl_openib_cq_size$'

# listed LINE TEXT VARIABLE=VALUE…: what ompi_info says of the parameters, with these and with a parameter file.
listed() {
    local line=$1 text=$2
    shift 2
    wanted "verbs, $line" || return 0
    log=$work/logs/listed
    c-tests/patience.sh 120 "${there[@]}" env OMPI_MCA_mca_base_component_path="$root/target/mca:$stock" \
        "OMPI_MCA_mca_base_param_files=$root/$work/first.conf,$root/$work/second.conf" "$@" \
        ompi_info --parsable --param btl verbs --level 9 >"$log" 2>&1 </dev/null
    says "^mca:btl:verbs:param:btl_verbs_$text\$"
    check "verbs, $line" $?
}
printf '%s\n' 'btl_openib_cq_size = 2k' '# btl_openib_mtu = 3' 'btl_openib_if_include = "one,two"' 'btl_openib_verbose = much' \
    '/* btl_openib_latency = 9' 'btl_openib_gid_index = 9 */ btl_openib_mtu = 5' '// btl_openib_mtu = 6' 'btl_openib_cpc_include = a # b' \
    >"$work/first.conf"
printf '%s\n' 'btl_openib_cq_size = 77' 'btl_openib_max_btls = 5' 'btl_verbs_free_list_num = 6' 'btl_openib_free_list_num = 7' >"$work/second.conf"
listed "what is said of openib in the environment holds" "eager_limit:value:8192" OMPI_MCA_btl_openib_eager_limit=8k
listed "what is said of openib in the first file holds" "cq_size:value:2048"
listed "what is said of openib in the second file holds" "max_btls:value:5"
listed "what is said of openib may be a text" "if_include:value:one,two"
listed "what is said of openib may be names" "flags:value:send,get" OMPI_MCA_btl_openib_flags=send,get
listed "what is said of openib may be names that mean nothing here" "flags:value:send" OMPI_MCA_btl_openib_flags=send,need-ack
listed "what is said of openib may be names of atomic operations" "flags:value:send,put,get,fetching-atomics" \
    OMPI_MCA_btl_openib_flags=send,put,get,fetching-atomics
listed "a comment that is inherited says nothing" "latency:value:4"
listed "and neither do its other lines" "gid_index:value:0"
listed "behind an inherited comment a line goes on" "mtu:value:5"
listed "what is inherited has its line to the end" "cpc_include:value:a # b"
listed "what is neither true nor false is passed over" "verbose:value:false"
listed "what is no number is passed over" "latency:value:4" OMPI_MCA_btl_openib_latency=low
listed "what is true or false is of the host's type for that" "allow_ib:type:bool"
listed "what is true or false has words" "allow_ib:value:true" OMPI_MCA_btl_verbs_allow_ib=enabled
listed "and numbers" "warn_nonexistent_if:value:false" OMPI_MCA_btl_verbs_warn_nonexistent_if=0
listed "and words where it is said of openib" "allow_ib:value:true" OMPI_MCA_btl_openib_allow_ib=yes
listed "and for what is true otherwise" "warn_nonexistent_if:value:false" OMPI_MCA_btl_openib_warn_nonexistent_if=f
listed "the environment goes before the files" "cq_size:value:99" OMPI_MCA_btl_openib_cq_size=99
listed "what is said of verbs in a file goes before that" "free_list_num:value:6" OMPI_MCA_btl_openib_free_list_num=9
listed "and what is said of verbs in the environment" "cq_size:value:11" OMPI_MCA_btl_verbs_cq_size=11 OMPI_MCA_btl_openib_cq_size=99

# loads LINE yes|no WORD…: whether hawser has the loader open librdmacm, which may be there already, with the host's libfabric.
loads() {
    local line=$1 expected=$2 found=no
    shift 2
    wanted "verbs, $line" || return 0
    log=$work/logs/loads
    rm -f "$work"/loads.*
    besides "$@" -x LD_DEBUG=files -x "LD_DEBUG_OUTPUT=$root/$work/loads"
    grep -qE 'librdmacm.*(dynamically loaded by .*(hawser|mca_btl_verbs)|direct_opencount=1)' "$work"/loads.* && found=yes
    [ "$status" = 0 ] && says '^PASS p2p$' && [ "$found" = "$expected" ]
    check "verbs, $line" $?
}
loads "the libraries are loaded where the kernel has a device" $there_is
loads "the libraries are loaded for who asks" yes --mca btl verbs,tcp,self

sum
