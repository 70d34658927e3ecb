#!/usr/bin/env bash
# The MPI programs of c-tests/mpi over the smcuda BTL, in a real mpirun, with `--mca btl smcuda,self`, and what
# happens when processes of a node die, are stopped, or may not read each other's memory.
#
#     c-tests/smcuda.sh debian12|debian13 [WORD …]
#
# debian12 is this machine, debian13 the chroot that tests/hosts/debian13.sh keeps. Needs target/mca
# (`make stage`). With words, only the runs whose line holds all of them. Each program checks itself,
# has a watchdog, and must say `PASS`. The last line is `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 2

. c-tests/host.sh

host_use "${1-}" || { echo "usage: $0 debian12|debian13 [WORD …]" >&2; exit 2; }
shift
words=("$@")
work=target/c-tests/$host/smcuda
mkdir -p "$work/logs" || exit 2

# run RANKS "PROGRAM ARGUMENT…" [OPTION …]
run() {
    local ranks=$1 command=$2
    shift 2
    mpi_job "smcuda, $ranks ranks: $command $*" "$ranks" "$command" --mca pml ob1 --mca btl smcuda,self "$@"
}

[ -e target/mca/libhawser.so ] || give_up "target/mca is there: make stage"
mpi_compile $(mpi_programs)

for program in p2p datatypes ibsend "truncate eager" cancel tags comms "rma allocate" bigmsg "flood 5000" "threads 100" forks spawn "spawn ports"; do
    run 2 "$program"
done
! whole || run 2 persist
# Of long messages that were matched first, ob1 gets all bytes, also those that find no room (4.1 and 5.0, with
# every BTL that has GET): only short ones may be truncated so.
run 2 "probe eager" --mca btl_smcuda_eager_limit 8192
for program in coll intercomm mixed "p2p small" tags; do run 4 "$program"; done
# A thread level that is told late, or to a session only.
for order in session second late; do
    [ "$host" = debian12 ] || run 2 "sessions_threads $order"
done
# Nothing is copied in one step, everything in fragments.
for program in p2p datatypes "rma allocate"; do run 2 "$program" --mca btl_smcuda_flags send; done
run 4 coll --mca btl_smcuda_flags send --mca btl_smcuda_max_send_size 1500
! whole || run 2 bigmsg --mca btl_smcuda_flags send
# Nobody is known before the first message for it or from it.
run 4 "p2p small" --mca mpi_add_procs_cutoff 0
# More processes than rings that are looked at: the others ring.
run 40 "p2p small"
! whole || run 2 p2p --mca mpi_yield_when_idle 0

# --- ranks that die, are stopped, or write rubbish

log=$work/logs/cc-own
for program in stopped rubbish strangers; do
    "${there[@]}" mpicc -std=gnu11 -O1 -Wall -Wextra -Wpedantic -Werror "c-tests/smcuda/$program.c" -o "$work/$program" >"$log" 2>&1 ||
        give_up "$program compiles"
done
"${there[@]}" cc -std=gnu11 -O1 -Wall -Wextra -Wpedantic -Werror c-tests/smcuda/forbid.c -o "$work/forbid" >"$log" 2>&1 ||
    give_up "forbid compiles"
mpi_compile killed

run 2 stopped
# Somebody who is no rank claims to send.
run 2 strangers
! whole || run 2 stopped --mca btl_smcuda_eager_limit 1024

# launch RANKS "PROGRAM ARGUMENT…" WORD…: a job that need not end well; fills `log` and `status`, and `remaining`: what is
# left of it, processes or files in memory.
launch() {
    local ranks=$1 pid
    local -a command
    read -ra command <<<"$2"
    shift 2
    log=$work/logs/launched
    retold launched "$ranks" "$@"
    remaining=
    for pid in $(sed -nE 's/^rank [0-9]+ pid ([0-9]+)$/\1/p' "$log"); do
        c-tests/patience.sh 10 tail -f /dev/null --pid="$pid"
        case $(readlink "/proc/$pid/exe" 2>/dev/null) in */"${command[0]}") remaining="$remaining $pid" ;; esac
    done
    remaining="$remaining$(find /dev/shm /tmp -maxdepth 1 -iname '*smcuda*' 2>/dev/null)"
}
launched() {
    local ranks=$1
    shift
    c-tests/patience.sh 60 "${there[@]}" ${by[@]+"${by[@]}"} mpirun --oversubscribe -n "$ranks" --mca mca_base_component_path "$root/target/mca:$stock" \
        "${quiet[@]}" --mca pml ob1 --mca btl smcuda,self "$@" "$root/$work/${command[0]}" "${command[@]:1}" >"$log.raw" 2>&1 </dev/null
    status=$?
    tr -d '\0' <"$log.raw" >"$log"
}
by=()

# A line of these checks is wanted, or not.
for when in start idle transfer collective finalize; do
    line="a rank killed ($when): the job ends, and nothing of it stays"
    wanted "smcuda, $line" || continue
    # What is copied in one step is never seen in part.
    options=()
    [ $when != transfer ] || options=(--mca btl_smcuda_flags send)
    launch 3 "killed $when" ${options[@]+"${options[@]}"}
    [ "$status" != 0 ] && [ "$status" != 124 ] && [ -z "$remaining" ] && [ "$(grep -cE '^rank [0-2] pid [0-9]+$' "$log")" = 3 ] &&
        ! says 'goes on with|watchdog|Segmentation|Aborted|panicked'
    check "smcuda, $line${remaining:+: $remaining}" $?
done

# An mpirun that lets the survivor live: it is hawser that has to notice.
for when in receive send; do
    line="a rank killed ($when), and the launcher says nothing: the other one hears of it"
    wanted "smcuda, $line" || continue
    launch 2 "killed $when" --enable-recovery
    [ "$status" != 124 ] && [ -z "$remaining" ] && ! says 'watchdog|Segmentation|Aborted|panicked|has sent everything' &&
        says 'is lost: its process has ended, and has not said that it would|rank 0 has (an error|nothing|a message that is right)$'
    check "smcuda, $line${remaining:+: $remaining}" $?
done

for byte in 255 1 165; do
    line="a rank that writes rubbish ($byte): the other one sees it, and says so"
    wanted "smcuda, $line" || continue
    launch 2 "rubbish $byte"
    [ "$status" != 0 ] && [ "$status" != 124 ] && [ -z "$remaining" ] && says 'what it has written to shared memory is damaged' &&
        ! says 'nobody sent|watchdog|Segmentation|panicked'
    check "smcuda, $line${remaining:+: $remaining}" $?
done

# Where memory of others cannot be read, long messages go in fragments.
for program in p2p "rma allocate"; do
    line="process_vm_readv is forbidden: $program"
    wanted "smcuda, $line" || continue
    by=("$root/$work/forbid")
    launch 2 "$program" --mca btl_base_verbose 1
    by=()
    [ "$status" = 0 ] && says "^PASS ${program%% *}\$" && says 'cannot be read \(process_vm_readv\(2\) is refused'
    check "smcuda, $line" $?
done

# MPI begins and ends again and again in one process. Open MPI 5.0.7 hangs in MPI_Session_init now and then, over its own
# shared memory as well (lives.c): such a job is run again.
if whole && [ "$host" = debian13 ]; then
    for talk in "" "talk "; do
        line="4 ranks: lives ${talk}100"
        wanted "smcuda, $line" || continue
        for try in 1 2 3 4; do
            launch 4 "lives ${talk}100" -x CHECK_WATCHDOG=20
            { [ "$status" != 0 ] && says 'hung in (waiting for one in )?Session_init'; } || break
            echo "the host has hung in MPI_Session_init (try $try)"
        done
        [ "$status" = 0 ] && says '^PASS lives$'
        check "smcuda, $line" $?
    done
fi

# One sees the others, who do not see it: neither way is used.
line="a PID namespace of its own: another transport is used, both ways"
if wanted "smcuda, $line"; then
    log=$work/logs/apart
    c-tests/patience.sh 60 "${there[@]}" mpirun --oversubscribe -n 2 --mca mca_base_component_path "$root/target/mca:$stock" \
        "${quiet[@]}" --mca pml ob1 --mca btl smcuda,tcp,self --mca btl_tcp_if_include lo --mca btl_base_verbose 1 \
        "$root/c-tests/smcuda/apart.sh" "$root/$work/p2p" small >"$log" 2>&1 </dev/null
    status=$?
    [ "$status" = 0 ] && says '^PASS p2p$' && says 'is not reached: it is in another PID namespace' && ! says 'Using smcuda btl for send'
    check "smcuda, $line" $?
fi

# A parameter that makes no sense: this line says why.
line="a parameter out of range: a line says so, and the job ends"
if wanted "smcuda, $line"; then
    launch 2 "p2p small" --mca btl_smcuda_eager_limit 99
    [ "$status" != 0 ] && [ "$status" != 124 ] && says 'btl_smcuda_eager_limit is 99; it must be 1024 to 65536'
    check "smcuda, $line" $?
fi

# Nobody asked for it: the host's own is used, and this one says nothing.
line="nobody asked for it: the host's own shared memory is used"
if wanted "smcuda, $line"; then
    command=(p2p small)
    log=$work/logs/unasked
    c-tests/patience.sh 60 "${there[@]}" mpirun --oversubscribe -n 2 --mca mca_base_component_path "$root/target/mca:$stock" \
        "${quiet[@]}" --mca pml ob1 --mca btl_base_verbose 100 "$root/$work/p2p" small >"$log" 2>&1 </dev/null
    status=$?
    [ "$status" = 0 ] && says '^PASS p2p$' && says 'Using (vader|sm) btl for send' && ! says 'Using smcuda btl for send|hawser: .*lost'
    check "smcuda, $line" $?
fi

sum
