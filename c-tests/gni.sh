#!/usr/bin/env bash
# The libfabric provider `gni`, loaded by an unmodified libfabric: what fi_getinfo answers, the objects and all that must
# not be given, structures that end where the oldest do, how processes end, messages between processes of a node, and
# progress while they compute or sleep.
#
#     c-tests/gni.sh debian12|debian13 [WORD …]
#
# debian12 is this machine (libfabric 1.17), debian13 the chroot that tests/hosts/debian13.sh keeps (2.1). Needs target/fi
# (`make stage`). Programs run as they are and under AddressSanitizer, on debian12 also under valgrind; what libfabric
# itself leaves of memory is not looked at. HAWSER_GNI_WAYS names the ways. Logs lie in target/c-tests/HOST/gni; that of a
# failed run is shown. The last line is `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 2

. c-tests/host.sh

host_use "${1-}" || { echo "usage: $0 debian12|debian13 [WORD …]" >&2; exit 2; }
shift
words=("$@")
work=target/c-tests/$host/gni
log=$work/log
rm -rf "$work"
mkdir -p "$work/plain" "$work/asan" "$work/other" || exit 2
[ -e target/fi/libgni-fi.so ] || give_up "target/fi is staged"

flags=(-std=gnu11 -g -O1 -Wall -Wextra -Werror -Wno-deprecated-declarations -pthread)
for name in info objects bounds messages progress rma atomics names vectors connected shared scalable scalable-objects survivors leaving; do
    "${there[@]}" gcc "${flags[@]}" "c-tests/gni/$name.c" -o "$work/plain/$name" -lfabric >"$log" 2>&1 || give_up "$name.c compiles"
    "${there[@]}" gcc "${flags[@]}" -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer \
        "c-tests/gni/$name.c" -o "$work/asan/$name" -lfabric >"$log" 2>&1 || give_up "$name.c compiles (asan)"
done
# This one is not linked to libfabric.
"${there[@]}" gcc "${flags[@]}" c-tests/gni/ends.c -o "$work/plain/ends" >"$log" 2>&1 || give_up "ends.c compiles"

ways="plain asan"
[ "$host" != debian12 ] || ways="$ways valgrind"
bare_library "$work/bare/libgni-fi.so" || give_up "the library can be stripped"
path=FI_PROVIDER_PATH=$root/target/fi
# Of what else libfabric has, nothing is loaded.
alone=FI_PROVIDER=gni
# job LINE PROGRAM ARGUMENT…: in all ways; it must say `PASS`.
job() {
    local text=$1 program=$2 way folder line status path
    local -a runner
    shift 2
    for way in ${HAWSER_GNI_WAYS:-$ways}; do
        line="$text, $way"
        wanted "$line" || continue
        folder=$way runner=() path=FI_PROVIDER_PATH=$root/target/fi
        [ "$way" = plain ] || path=FI_PROVIDER_PATH=$root/$work/bare
        if [ "$way" = valgrind ]; then
            folder=plain
            runner=(valgrind --quiet --read-inline-info=no --error-exitcode=99 --leak-check=no --fair-sched=yes --num-callers=30
                "--suppressions=$root/c-tests/gni/memory.supp")
        fi
        log=$work/$(tr -c 'a-z0-9\n' - <<<"$line").log
        c-tests/patience.sh 120 "${there[@]}" env "$path" $alone IPATH_NO_BACKTRACE=1 \
            ASAN_OPTIONS=detect_leaks=1:handle_segv=0 LSAN_OPTIONS="suppressions=$root/c-tests/hostile/leaks.supp:print_suppressions=0" \
            "${runner[@]}" "$root/$work/$folder/$program" "$@" >"$log" 2>&1 </dev/null
        status=$?
        if [ "$status" = 0 ] && ! says '^PASS$'; then status=silent; fi
        check "$line" "$status"
    done
}

for name in names types capabilities attributes registration addresses; do job "fi_getinfo: $name" info $name; done
alone= HAWSER_GNI_WAYS=plain job "fi_getinfo: no layer stands on it" info layers
for name in fabrics events queues counters polls waits addresses memory endpoints; do job "objects: $name" objects $name; done
job "objects: memory, keys and addresses of the provider's" objects memory ours
for where in apart together self; do
    for name in lengths calls matching truncation peeks selection multiples; do job "messages $where: $name" messages $name $where; done
done
for name in floods death heirs successors hasty farewell threads descriptors; do job "messages apart: $name" messages $name apart; done
for name in lengths truncation peeks multiples floods death successors farewell threads descriptors; do
    job "messages apart, progress by itself: $name" messages $name apart auto
done
job "three processes, of which one is killed" survivors talk
# Under valgrind a program that looks all the time hardly lets its helpers run.
HAWSER_GNI_WAYS="plain asan" job "three processes, of which one is killed, progress by itself" survivors talk auto
for name in computes queued starved forked threads; do job "progress by itself: $name" progress $name; done
for name in manual wakes room forked; do job "progress by calls: $name" progress $name manual; done
# Valgrind gives no descriptors of processes, without which whoever sleeps has to look now and then, and sees a process that
# has ended only when it is waited for.
asleep() { HAWSER_GNI_WAYS=${HAWSER_GNI_WAYS:+${HAWSER_GNI_WAYS//valgrind/}} ways=${ways% valgrind} job "$@"; }
asleep "progress by itself: idle" progress idle
asleep "progress by calls: sleeps" progress sleeps manual
asleep "progress by calls: death" progress death manual
asleep "progress by itself, calls that wait: death" progress death
asleep "progress of connections by itself: control" progress control connections
job "progress by itself, calls that wait: wakes" progress wakes
job "progress by itself, descriptors: wakes" progress wakes descriptors
job "progress by calls, descriptors: wakes" progress wakes manual descriptors
# libfabric's numbers of what threads may do: all, an object each, the domain, a queue each, an endpoint each.
for threading in 1 2 3 4 5; do
    job "threads, $threading: one" progress wakes manual $threading
    case $threading in
    1) job "threads, $threading: four at one endpoint" progress threads manual $threading ;;
    3) continue ;;
    esac
    for progress in manual ""; do
        job "threads, $threading: four with an endpoint each${progress:+, progress by calls}" progress endpoints $threading $progress
    done
done
while read -r where keys; do
    for name in lengths calls refusals order fences events closing everything selection; do job "memory $where, by $keys: $name" rma $name "$where" "$keys"; done
    for name in questions arithmetic calls refusals sums; do job "atomic operations $where, by $keys: $name" atomics $name "$where" "$keys"; done
done <<'EOF'
apart offsets
apart addresses
together offsets
self addresses
EOF
# A child of fork(2) finds locks of AddressSanitizer's allocator held by threads that it does not have.
HAWSER_GNI_WAYS=plain job "atomic operations together, by offsets: forked" atomics forked together offsets
# Memory by the hundred MiB, which valgrind is too slow for.
fast() { asleep "$@"; }
for name in get put send; do
    fast "an endpoint is closed while a peer copies: $name" leaving $name
    fast "an endpoint is closed while a peer copies, progress by itself: $name" leaving $name auto
done
for name in rights death; do job "memory apart, by offsets: $name" rma $name apart offsets; done
for name in lengths order fences events closing computes; do
    job "memory apart, progress by itself: $name" rma $name apart offsets auto
done
for name in reopened taken foreign descriptors many cancelled texts; do job "names: $name" names $name; done
for name in messages calls death writers rubbish squatters; do job "address vectors with a name: $name" vectors $name; done
for where in apart together; do
    for name in messages memory; do job "connected endpoints $where: $name" connected $name $where; done
done
for name in functions refusals leftovers descriptors; do job "connected endpoints: $name" connected $name apart; done
asleep "connected endpoints: death" connected death apart
for name in receives selections datagrams triggers work counts; do job "shared contexts, datagrams, triggers: $name" shared $name; done
for name in objects names; do job "scalable endpoints: $name" scalable-objects $name alone; done
job "scalable endpoints: bound" scalable bound alone
for where in apart together; do
    for name in messages memory threads; do job "scalable endpoints $where: $name" scalable $name $where; done
done
job "scalable endpoints apart, in a table: messages" scalable messages apart table
for name in sources late parting uncalled; do job "scalable endpoints: $name" scalable $name together; done
for name in refusals closing; do job "scalable endpoints: $name" scalable-objects $name together; done
asleep "scalable endpoints: death" scalable death apart
for name in hints attributes registrations errors; do job "the shortest structures: $name" bounds $name; done

# tool LINE STATUS PATTERN WORD…: what fi_info answers, and says; a pattern with ! before it is not said.
tool() {
    local line="fi_info $1" expected=$2 pattern=$3 status
    shift 3
    wanted "$line" || return 0
    log=$work/$(tr -c 'a-z0-9\n' - <<<"$line").log
    c-tests/patience.sh 60 "${there[@]}" env "$path" IPATH_NO_BACKTRACE=1 fi_info "$@" >"$log" 2>&1 </dev/null
    status=$?
    [ "$status" != "$expected" ] || status=0
    if [ "$status" = 0 ]; then
        case $pattern in
        !*) ! says "${pattern#!}" || status=said ;;
        *) says "$pattern" || status=silent ;;
        esac
    fi
    check "$line" "$status"
}
tool "knows it" 0 '^provider: gni$' -p gni
tool "shows it among the others" 0 '^ *provider: gni$|^provider: gni$'
tool "shows no layer on it" 0 '!gni;|;gni'
tool "of reliable datagrams" 0 '^provider: gni$' -p gni -t FI_EP_RDM
# What fi_info ends with is no data, 61.
for type in FI_EP_MSG FI_EP_DGRAM; do tool "of $type" 0 '^provider: gni$' -p gni -t $type; done
for caps in FI_MSG FI_TAGGED FI_RMA FI_ATOMIC "FI_RMA|FI_READ" "FI_MSG|FI_TAGGED|FI_DIRECTED_RECV|FI_SOURCE"; do
    tool "with $caps" 0 '^provider: gni$' -p gni -c "$caps"
done
tool "with named receive contexts" 0 '^provider: gni$' -p gni -c "FI_TAGGED|FI_NAMED_RX_CTX"
for caps in FI_COLLECTIVE FI_MULTICAST; do tool "with $caps has none" 61 '!^provider: gni' -p gni -c $caps; done
tool "of a node" 0 'dest_addrlen: 48' -p gni -n 127.0.0.1 -P 9228 -v
tool "of a node that is none has none" 61 '!^provider: gni' -p gni -n g00n13s -P 9228
FI_GNI_IFACE=$'\xff' tool "with an interface whose name is no text has none" 61 '!^provider: gni' -p gni

# So many processes each.
number=10
! whole || number=30
# ends LINE LIBRARY HOW [LIBRARY]
ends() {
    local line=$1 status
    shift
    wanted "$line" || return 0
    log=$work/$(tr -c 'a-z0-9\n' - <<<"$line").log
    c-tests/patience.sh 300 "${there[@]}" env "$path" IPATH_NO_BACKTRACE=1 bash -c \
        'for ((i = 1; i <= $0; i++)); do "$@" || { echo "status $? of process $i"; exit 1; }; done' $number "$root/$work/plain/ends" "$@" >"$log" 2>&1 </dev/null
    status=$?
    if [ "$status" = 0 ] && [ "$(grep -c '^PASS$' "$log")" != $number ]; then status=silent; fi
    check "$line" "$status"
}
library=$libraries/libfabric.so.1
"${there[@]}" cp "$library" "$root/$work/other/libown.so"
for how in closed open threads helped helper; do ends "processes end: $how, libfabric seen by nobody else" "$library" $how; done
ends "processes end: open, a libfabric of another name" "$root/$work/other/libown.so" open
ends "processes end: open, two libfabrics" "$library" open "$root/$work/other/libown.so"

line="where FI_PROVIDER_PATH does not name its folder it is not loaded"
if wanted "$line"; then
    log=$work/unnamed.log
    c-tests/patience.sh 60 "${there[@]}" env -u FI_PROVIDER_PATH IPATH_NO_BACKTRACE=1 fi_info >"$log" 2>&1 </dev/null
    ! says '^provider: gni'
    check "$line" $?
fi

sum
