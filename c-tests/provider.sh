#!/usr/bin/env bash
# Failures that libfabric's own providers cannot be made to have, in a real mpirun that takes hawser as
# its MTL: completions that are errors, of several codes; posts that are refused, or put off for long;
# a completion queue that fails. They come from c-tests/provider/faulty.c, a layer over `tcp;ofi_rxm`, or over the
# provider that has tagged messages over TCP by itself, from which unexpected messages are taken over. An
# unmodified libfabric loads it. What is right: no hang, no lost message, and an MPI error exactly where
# something failed.
#
#     c-tests/provider.sh debian12|debian13 [WORD …]
#
# debian12 is this machine, debian13 the chroot that tests/hosts/debian13.sh keeps. Needs target/mca
# (`make stage`). With words, only the runs whose line holds all of them. Logs lie in
# target/c-tests/HOST/provider; that of a failed run is shown. The last line is `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 2

. c-tests/host.sh

host_use "${1-}" || { echo "usage: $0 debian12|debian13 [WORD …]" >&2; exit 2; }
shift
words=("$@")
work=target/c-tests/$host/provider
mkdir -p "$work/lib" || exit 2
log=$work/log

[ -e target/mca/libhawser.so ] || give_up "target/mca is staged"
flags=(-std=gnu11 -O1 -Wall -Wextra -Werror)
"${there[@]}" cc "${flags[@]}" -fPIC -shared -fvisibility=hidden c-tests/provider/faulty.c -o "$work/lib/libfaulty-fi.so" -lfabric -lpthread >"$log" 2>&1 || give_up "faulty.c compiles"
"${there[@]}" mpicc "${flags[@]}" c-tests/provider/rounds.c -o "$work/rounds" -lpthread >"$log" 2>&1 || give_up "rounds.c compiles"
# Communicators from groups are MPI 4's.
[ "$host" = debian12 ] || "${there[@]}" mpicc "${flags[@]}" c-tests/provider/groups.c -o "$work/groups" >"$log" 2>&1 || give_up "groups.c compiles"

# job LINE "FAULT=VALUE …" PROGRAM ARGUMENT…: fills `log` and `status`.
job() {
    local line=$1 faults=() name
    log=$work/$(tr -c 'a-z0-9\n' - <<<"$line").log
    for name in $2; do faults+=(-x "FAULTY_$name"); done
    shift 2
    timeout --kill-after=10 600 "${there[@]}" mpirun --oversubscribe --bind-to none -n 2 \
        --mca mca_base_component_path "$root/target/mca:$stock" "${quiet[@]}" --mca pml cm --mca mtl hawser \
        --mca mtl_hawser_provider_include "$layer" -x "FI_PROVIDER_PATH=$root/$work/lib" "${faults[@]}" \
        "$root/$work/$1" "${@:2}" >"$log" 2>&1 </dev/null
    status=$?
}

# rounds LINE "FAULT=VALUE …" ARGUMENT…: all messages arrive, and as many operations fail as should.
rounds() {
    wanted "$1" || return 0
    local begin=$SECONDS
    job "$1" "$2" rounds "${@:3}"
    [ "$status" = 0 ] && says '^PASS rounds$' && says 'the last fault'
    check "$1 ($((SECONDS - begin)) s)" $?
}

layer=faulty
# sends fail on rank 0, receives on rank 1
sends=RANK=0 receives=RANK=1
for way in send isend ssend issend; do
    # Short blocking and nonblocking messages are injected, and complete without a word.
    [ "$way" = send ] || [ "$way" = isend ] && longer="LEAST=100000" || longer=
    rounds "$way: three completions are errors" "$sends KIND=send-error AFTER=4 TIMES=3 $longer" $way 3 send
    rounds "$way: refused three times" "$sends KIND=send-refused AFTER=2 TIMES=3 $longer" $way 3 send again
    rounds "$way: put off for long" "$sends KIND=send-again AFTER=7 TIMES=50000" $way 0 send
done
for code in 5 107 125; do
    rounds "receive: three completions are errors of code $code" "$receives KIND=recv-error AFTER=4 TIMES=3 CODE=$code LEAST=8" send 3 receive
done
rounds "receive: three completions are truncations" "$receives KIND=recv-error AFTER=4 TIMES=3 CODE=265 LEAST=8" send 3 receive truncate
rounds "receive: refused three times" "$receives KIND=recv-refused AFTER=7 TIMES=6 LEAST=8" send 3 receive again
rounds "receive: put off for long" "$receives KIND=recv-again AFTER=7 TIMES=50000" send 0 receive
rounds "probe: three answers are errors" "$receives KIND=peek-error AFTER=10 TIMES=3" probe 3 receive
rounds "probe: refused three times" "$receives KIND=peek-refused AFTER=10 TIMES=3" probe 3 receive
rounds "matched probe: refused three times" "$receives KIND=peek-refused AFTER=10 TIMES=3" mrecv 3 receive

layer="$own;faulty"
for way in send issend; do
    rounds "$own, $way: put off for long" "UNDER=$own $sends KIND=send-again AFTER=7 TIMES=50000" $way 0 send
done
rounds "$own, issend: refused three times" "UNDER=$own $sends KIND=send-refused AFTER=2 TIMES=3" issend 3 send again
rounds "$own, receive: three completions are errors" "UNDER=$own $receives KIND=recv-error AFTER=4 TIMES=3 LEAST=8" send 3 receive
rounds "$own, receive: put off for long" "UNDER=$own $receives KIND=recv-again AFTER=7 TIMES=50000" send 0 receive
# Messages are taken over: put off costs nothing, and one that cannot be had is an error of its receive alone. It is
# received all the same, for nobody, which is refused as well the next times.
rounds "$own, taken over: put off for long" "UNDER=$own $receives KIND=take-again AFTER=4 TIMES=50000" behind 0 receive
rounds "$own, taken over: refused three times" "UNDER=$own $receives KIND=take-refused AFTER=4 TIMES=3" behind 1 receive
rounds "$own, taken over: refused fifty times" "UNDER=$own $receives KIND=take-refused AFTER=4 TIMES=50" behind 1 receive
rounds "$own, taken over: three completions are errors" "UNDER=$own $receives KIND=take-error AFTER=4 TIMES=3" behind 3 receive
rounds "$own, matched probe: put off for long" "UNDER=$own $receives KIND=take-again AFTER=4 TIMES=50000" mrecv 0 receive
rounds "$own, matched probe: refused three times" "UNDER=$own $receives KIND=take-refused AFTER=4 TIMES=3" mrecv 1 receive
# What the short path is refused is asked for once more, and then it is an error: two refusals are one.
for way in send isend; do
    rounds "$own, $way: short ones refused three times" "UNDER=$own $sends KIND=send-refused AFTER=2 TIMES=6 MOST=100" $way 3 send again
done
layer=faulty

line="the completion queue fails: the job ends, and says why"
if wanted "$line"; then
    job "$line" "$sends KIND=queue AFTER=200 TIMES=1000000 CODE=5" rounds send 0 send
    [ "$status" != 0 ] && [ "$status" != 124 ] && [ "$status" != 137 ] && says 'completion queue failed \(libfabric error 5\)' && ! says 'watchdog|panicked'
    check "$line" $?
fi

line="the completion queue is overrun: the job ends, and says why"
if wanted "$line"; then
    job "$line" "$sends KIND=overrun AFTER=200" rounds send 0 send
    [ "$status" != 0 ] && [ "$status" != 124 ] && [ "$status" != 137 ] && says 'completion queue failed \(libfabric error 268\)' && ! says 'watchdog|panicked'
    check "$line" $?
fi

line="communicators from groups: the first cannot listen, the second can"
if [ "$host" != debian12 ] && wanted "$line"; then
    job "$line" "KIND=listen-refused" groups
    [ "$status" = 0 ] && says '^PASS groups$' && says 'the last fault'
    check "$line" $?
fi

sum
