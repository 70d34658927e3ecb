#!/usr/bin/env bash
# The library's own C functions (include/hawser.h): programs without Open MPI, built with what `make install` has put
# into an empty folder and its pkg-config file, and nothing else; each case is two processes, or three.
#
#     c-tests/capi.sh debian12|debian13 [WORD …]
#
# debian12 is this machine, debian13 the chroot that tests/hosts/debian13.sh keeps. Every case runs over each transport
# as it is and under AddressSanitizer, which looks for what is left of memory, too; most on debian12 also under valgrind.
# The matching transport has libfabric's TCP provider; what libfabric itself leaves of memory is not looked at.
# Afterwards no file may be left. HAWSER_CAPI_WAYS names the ways (plain asan valgrind). The last line is `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 2

. c-tests/host.sh
. c-tests/cuda/build.sh
. c-tests/verbs/build.sh

host_use "${1-}" || { echo "usage: $0 debian12|debian13 [WORD …]" >&2; exit 2; }
shift
words=("$@")
work=target/c-tests/$host/capi
log=$work/log
rm -rf "$work"
mkdir -p "$work/plain" "$work/valgrind" "$work/asan" "$work/tmp" || exit 2

PREFIX=/opt/hawser DESTDIR=$PWD/$work/root COMPONENTDIR=/opt/components LIBDIR= pkgconfig/install.sh install >"$log" 2>&1 || give_up "make install"
prefix=$work/root/opt/hawser
config() { PKG_CONFIG_PATH=$PWD/$prefix/lib/pkgconfig pkg-config --define-variable=prefix="$root/$prefix" "$@" hawser; }
read -ra flags < <(config --cflags --libs)
[ ${#flags[@]} -gt 0 ] || give_up "pkg-config finds hawser"

flags+=(-pthread "-Wl,-rpath,$root/$prefix/lib")
strict=(-std=c11 -D_GNU_SOURCE -g -O1 -Wall -Wextra -Wpedantic -Werror -Iexamples)
examples=()
for name in examples/*.c; do examples+=("$(basename "$name" .c)"); done
# build FOLDER FLAG…: the programs.
build() {
    local folder=$1 name
    shift
    for name in traffic again streamed overtaken company argument matched parting halted refused survivors rails growth growth-matched; do
        "${there[@]}" gcc "${strict[@]}" "$@" "c-tests/capi/$name.c" -o "$folder/$name" "${flags[@]}" >"$log" 2>&1 || give_up "$name.c compiles ($folder)"
    done
    for name in "${examples[@]}"; do
        "${there[@]}" gcc "${strict[@]}" "$@" "examples/$name.c" -o "$folder/$name" "${flags[@]}" >"$log" 2>&1 || give_up "$name.c compiles ($folder)"
    done
}
build "$work/plain"
bare_library "$work/bare/libhawser.so.0" || give_up "the library can be stripped"
bare="-Wl,-rpath,$root/$work/bare"
build "$work/valgrind" "$bare"
build "$work/asan" "$bare" -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer

# Over the software stand-in for the CUDA driver.
mkdir -p "$work/cuda" && cuda_library "$work/cuda" || give_up "the stand-in compiles"
"${there[@]}" gcc "${strict[@]/-std=c11/-std=gnu11}" c-tests/capi/device.c -o "$work/plain/device" "$work/cuda/libcuda.so.1" "${flags[@]}" >"$log" 2>&1 || give_up "device.c compiles"

# The RDMA device is the software stand-in's.
mkdir -p "$work/verbs" && verbs_libraries "$work/verbs" || give_up "the stand-in compiles"

# The second host has no C++ compiler; the header is the same.
line="the header compiles as C++17"
if [ "$host" = debian12 ] && wanted "$line"; then
    "${there[@]}" g++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -x c++ c-tests/capi/header.cc -o "$work/header" "${flags[@]}" >"$log" 2>&1 &&
        "${there[@]}" "$root/$work/header" >>"$log" 2>&1
    check "$line, and its functions are called from there" $?
fi
for name in "${examples[@]}"; do
    line="an example of at most 150 lines: $name"
    if wanted "$line"; then
        [ "$(wc -l <"examples/$name.c")" -le 150 ]
        check "$line" $?
    fi
    line="an example is plain C11: $name"
    if wanted "$line"; then
        "${there[@]}" gcc -std=c11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only "examples/$name.c" "${flags[@]}" >"$log" 2>&1
        check "$line" $?
    fi
done

# The lines of README.md on C programs, as they stand there, beside the examples. pkg-config says what is said of the
# folder that all this is installed in.
line="the lines of README.md compile and run every example"
if wanted "$line"; then
    log=$work/readme.log
    mkdir -p "$work/readme/bin" && cp -r examples "$work/readme/"
    printf '#!/bin/sh\n[ "$*" = "--cflags --libs hawser" ] && echo "%s"\n' "${flags[*]}" >"$work/readme/bin/pkg-config"
    chmod +x "$work/readme/bin/pkg-config"
    { echo 'set -e'; sed -n '/^### From a C program/,/^### [^F]/s/^    //p' README.md; } >"$work/readme/lines"
    c-tests/patience.sh 120 "${there[@]}" env TMPDIR="$root/$work/tmp" bash -c \
        'cd "$0" && PATH=$PWD/bin:$PATH exec bash lines' "$root/$work/readme" >"$log" 2>&1 </dev/null
    status=$?
    for name in "${examples[@]}"; do
        grep -qx "cc -o $name examples/$name.c \$(pkg-config --cflags --libs hawser)" "$work/readme/lines" || status="no line for $name"
    done
    [ "$(grep -cE '\b0 (of 10000 |answers )?wrong$' "$log")" = ${#examples[@]} ] || status="wrong answers"
    rm -rf "$work/tmp"/*
    check "$line" "$status"
fi

# ways_of CASE: valgrind where most is made and ended, and in the whole matrix everywhere.
ways_of() {
    ways="plain asan"
    case $host:$1 in
    # Those keep what is freed.
    *:short | *:million) ways=plain ;;
    # What is below the byte transports does not know its host.
    debian13:*) [ -z "${transport-}" ] || whole || ways=plain ;;
    # Valgrind takes too long for so many connections.
    *:often) ;;
    # Those have threads with little stack, a child, signals and no descriptors: what valgrind has in their place is no test of
    # these.
    *:closed | *:forked | *:returned | *:sampled | *:stacks | *:untouchable | *:poor) ;;
    debian12:host | debian12:handles | debian12:values | debian12:lengths | debian12:transfers | debian12:reopen) ways="$ways valgrind" ;;
    debian12:killed | debian12:finalize | debian12:matching | debian12:probes | debian12:cancel | debian12:synchronous | debian12:within) ways="$ways valgrind" ;;
    debian12:*) ! whole || ways="$ways valgrind" ;;
    esac
}
# How long it is watched whether a process grows.
growth=short
! whole || growth=million
leaks=full settings=()
# job LINE PROGRAM ARGUMENT…: in all ways, with what is set; it must say `PASS`, or what `answer` is, and leave no file.
job() {
    local text=$1 program=$2 way folder line status left sanitizer=detect_leaks=1:handle_segv=0
    local -a runner
    shift 2
    ways_of "$2"
    # Of the quarter of a gigabyte that AddressSanitizer keeps of what was freed, each of three hundred children gets the page tables.
    [ "$2" != forked ] || sanitizer=$sanitizer:quarantine_size_mb=8
    for way in ${HAWSER_CAPI_WAYS:-$ways}; do
        line="$text, $way"
        wanted "$line" || continue
        folder=$way runner=()
        if [ "$way" = valgrind ]; then
            runner=(valgrind --quiet --read-inline-info=no --error-exitcode=99 --leak-check=$leaks --errors-for-leak-kinds=definite,indirect,possible
                --fair-sched=yes --num-callers=30 "--suppressions=$root/c-tests/capi/memory.supp")
        fi
        log=$work/$(tr -c 'a-z0-9\n' - <<<"$line").log
        c-tests/patience.sh 120 "${there[@]}" env TMPDIR="$root/$work/tmp" XDG_RUNTIME_DIR= PMIX_SERVER_TMPDIR= \
            ASAN_OPTIONS=$sanitizer ${settings[@]+"${settings[@]}"} "${runner[@]}" "$root/$work/$folder/$program" "$@" >"$log" 2>&1 </dev/null
        status=$?
        # But the lock of the user's folder, which is for all jobs.
        left=$(find "$work/tmp" -mindepth 2 ! -path "*/hawser-$(id -u)/door")
        rm -rf "$work/tmp"/*
        if [ "$status" = 0 ] && ! grep -qE "${answer:-^PASS$}" "$log"; then status=silent; fi
        if [ "$status" = 0 ] && [ -n "$left" ]; then status="files left: $left"; fi
        check "$line" "$status"
    done
}

for transport in smcuda usnic verbs; do
    settings=()
    [ "$transport" != verbs ] || settings=(LD_LIBRARY_PATH="$root/$work/verbs" HAWSER_VERBS_DEVICES=roce_0=127.0.0.1/roce)
    for name in names tables parameters order host handles values; do
        job "$transport: what must not be given: $name" argument "$transport" "$name"
    done
    for name in lengths sendi many reentry nested transfers reopen killed finalize threads; do
        job "$transport: $name" traffic "$transport" "$name"
    done
    job "$transport: deleted and added again" again "$transport" kept
    job "$transport: deleted, sent to and added again" again "$transport" waited
    job "$transport: deleted and added again while it sends" streamed "$transport" busy
    job "$transport: deleted and added again, and it does not know" streamed "$transport" blind
    job "$transport: a get is over when its bytes are here, whatever has gone behind it" overtaken "$transport" get
    job "$transport: what is sent right before its peer is deleted arrives" overtaken "$transport" end
    for name in closed forked returned sampled stacks deaf poor; do
        job "$transport: in bad company: $name" company "$transport" "$name"
    done
    # By one queue, over a device that tells of what has gone though a read before it is not answered, as Linux' siw does.
    if [ "$transport" = verbs ]; then
        others=("${settings[@]}")
        settings=(LD_LIBRARY_PATH="$root/$work/verbs" HAWSER_VERBS_DEVICES=iwarp_0=127.0.0.1/iwarp QUEUES=P,65536,64)
        job "verbs over iWARP: a get is over when its bytes are here, whatever has gone behind it" overtaken verbs get
        # Long messages take their time, as one does that is sent again: what goes by another queue pair is there before.
        slow=(HAWSER_VERBS_DELAY=20000 HAWSER_VERBS_DELAY_FROM=1000)
        settings=("${others[@]}" "${slow[@]}")
        job "verbs, a slow queue pair: what is sent right before its peer is deleted arrives" overtaken verbs end
        settings=(LD_LIBRARY_PATH="$root/$work/verbs" HAWSER_VERBS_DEVICES=iwarp_0=127.0.0.1/iwarp "${slow[@]}")
        job "verbs over iWARP, a slow queue pair: what is sent right before its peer is deleted arrives" overtaken verbs end
        # Of three processes two lose each other; of those whose link goes down each has a device of its own.
        processes=("${there[@]}") addresses='ip link set lo up && ip addr add 127.0.0.2/8 dev lo && ip addr add 127.0.0.3/8 dev lo && exec "$@"'
        mkdir -p "$work/control"
        for over in "RoCE roce" "iWARP iwarp"; do
            read -r called kind <<<"$over"
            settings=(LD_LIBRARY_PATH="$root/$work/verbs" HAWSER_VERBS_DEVICES="${kind}_0=127.0.0.1/$kind")
            # How often a peer has asked is more than eight bits can count.
            job "verbs over $called: more than 255 attempts to connect, and to be connected, with one peer do no harm" again verbs often
            job "verbs over $called, three processes: of one that is killed the others hear, and go on with each other" survivors verbs killed
            job "verbs over $called, three processes: a completion error ends that endpoint alone" survivors verbs completion
            job "verbs over $called, three processes: what is no message ends that endpoint alone" survivors verbs corrupt
            settings[1]=HAWSER_VERBS_DEVICES=first=127.0.0.1/$kind,second=127.0.0.2/$kind,third=127.0.0.3/$kind
            settings+=(HAWSER_VERBS_CONTROL="$root/$work/control")
            there=(unshare -n sh -c "$addresses" sh "${processes[@]}")
            job "verbs over $called, three processes: of one whose completion queues end the others hear, and go on with each other" survivors verbs queues
            job "verbs over $called, three processes: of one whose link stays down the others hear, and go on with each other" survivors verbs unplugged
            job "verbs over $called, three processes: of one whose device is taken out the others hear, and go on with each other" survivors verbs removed
            # Of two devices the queues of one end in one process.
            settings=(LD_LIBRARY_PATH="$root/$work/verbs" HAWSER_VERBS_DEVICES=first=127.0.0.1/$kind,second=127.0.0.2/$kind)
            job "verbs over $called, two devices, the completion queues of one end: what is under way by it ends once, and the other goes on" rails verbs queues
            job "verbs over $called, two devices, the shared queues of one end: what is under way by it ends once, and the other goes on" rails verbs shared
            there=("${processes[@]}")
            settings=(LD_LIBRARY_PATH="$root/$work/verbs" HAWSER_VERBS_DEVICES="${kind}_0=127.0.0.1/$kind" QUEUES=P,65536,64)
            job "verbs over $called, a device that takes nothing any more: each message that waits ends, once" rails verbs no-sends
            job "verbs over $called, a device that takes nothing any more: each get that waits ends, once" rails verbs no-gets
        done
        settings=("${others[@]}")
    fi
    # Over datagrams the owner of the memory reads and writes it, as anybody does: with the processor. A device that cannot
    # reach memory does not register it.
    [ "$transport" != smcuda ] || job "$transport: in bad company: untouchable" company "$transport" untouchable
    [ "$transport" != usnic ] || job "$transport: lines of statistics are in the caller's log" company "$transport" figures
    job "$transport: what a process has does not grow ($growth)" growth "$transport" $growth
    # The examples ask for no interface, and the stand-in's is the loopback one, which has to be asked for.
    [ "$transport" != verbs ] || continue
    for length in 0 1000 30000; do
        answer="^$transport, $length bytes: .*, 0 of 500 wrong$" job "$transport: the example, $length bytes" pingpong "$transport" "$length" 500
    done
done

# Over libfabric.
transport=
leaks=no
settings=(LSAN_OPTIONS="suppressions=$root/c-tests/hostile/leaks.supp:print_suppressions=0")
providers=("$own")
! whole || providers+=("tcp;ofi_rxm" sockets)
for provider in "${providers[@]}"; do
    for name in names tables parameters order host handles values; do
        job "ofi over $provider: what must not be given: $name" refused "$provider" "$name"
    done
    for name in lengths matching truncation probes cancel synchronous many reentry nested self reopen layouts threads; do
        job "ofi over $provider: $name" matched "$provider" "$name"
    done
    for name in within beside; do
        job "ofi over $provider: a peer is forgotten: $name" parting "$provider" "$name"
    done
    # There the time that a message takes grows with the receives that wait.
    [ "$provider" = sockets ] || job "ofi over $provider: queued" matched "$provider" queued
    # What tcp;ofi_rxm itself keeps is in docs/hawser-ofi.7, and what makes it keep nothing: the rest is ours. sockets is slow.
    others=("${settings[@]}")
    [ "$provider" != "tcp;ofi_rxm" ] || settings+=(FI_UNIVERSE_SIZE=2 FI_OFI_RXM_EAGER_LIMIT=131072)
    [ "$provider" = sockets ] || job "ofi over $provider: what a process has does not grow ($growth)" growth-matched "$provider" $growth
    settings=("${others[@]}")
    for name in killed stopped paused forked returned; do
        # What is sent to a process that is stopped goes to a thread of the provider's.
        [ "$provider:$name" = sockets:stopped ] || job "ofi over $provider: $name" halted "$provider" "$name"
    done
done
answer='^100 tasks, 0 answers wrong$' job "ofi: the example" tagged "$own" 100
# A file that is no library: found before the one that is there.
mkdir -p "$work/empty" && : >"$work/empty/libfabric.so.1"
settings+=(LD_LIBRARY_PATH="$root/$work/empty" LOUD=1)
answer="^0: mtl_ofi is not used: libfabric\.so\.1 cannot be loaded \(.*\); install libfabric, Debian's package is libfabric1$" \
    job "ofi without libfabric" refused "$own" missing
leaks=full settings=()

for transport in smcuda usnic; do
    answer="^$transport, 100000 bytes: got and put, 0 wrong$" job "$transport: the example of PUT and GET" get "$transport" 100000
done

for how in "opened by the peer's device" "by way of host memory"; do
    line="smcuda: device memory, $how"
    wanted "$line" || continue
    log=$work/$(tr -c 'a-z0-9\n' - <<<"$line").log
    mig=0
    [ "$how" = "opened by the peer's device" ] || mig=1
    rm -f "$work"/ledger.*
    c-tests/patience.sh 120 "${there[@]}" env LD_LIBRARY_PATH="$root/$work/cuda" HAWSER_CUDA_MIG=$mig \
        HAWSER_CUDA_LEDGER="$root/$work/ledger" "$root/$work/plain/device" smcuda all >"$log" 2>&1 </dev/null
    status=$?
    if [ "$status" = 0 ]; then says '^PASS$' && cuda_ledger "$work/ledger" 2 >>"$log" 2>&1 || status=ledger; fi
    check "$line" "$status"
done

sum
