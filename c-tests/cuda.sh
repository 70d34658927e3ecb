#!/usr/bin/env bash
# The software stand-in for libcuda.so.1 (c-tests/cuda), over which device memory is tested where there is no
# GPU: each rule that it keeps as the real driver does, in one process and between several.
#
#     c-tests/cuda.sh debian12|debian13 [WORD …]
#
# debian12 is this machine, debian13 the chroot that tests/hosts/debian13.sh keeps. Each case runs as it is, and on
# debian12 under AddressSanitizer; on debian13 those that use most of it run under valgrind (in `make test-all`, all).
# Afterwards nothing may be left in its ledger.
# The last line is `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 2

. c-tests/host.sh
. c-tests/cuda/build.sh

host_use "${1-}" || { echo "usage: $0 debian12|debian13 [WORD …]" >&2; exit 2; }
shift
words=("$@")
work=target/c-tests/$host/cuda
log=$work/log
rm -rf "$work"
mkdir -p "$work/plain" "$work/asan" "$work/ledgers" || exit 2
unset "${!HAWSER_CUDA_@}" CUDA_VISIBLE_DEVICES

# ways_of CASE: fills `ways`.
ways_of() {
    ways=(plain asan)
    [ "$host" = debian13 ] || return 0
    ways=(plain)
    case $1 in
    memory-copies-arrive | stream-the-legacy-stream | stream-several-threads | ipc-memory-is-shared | between-events-cross-processes | \
        vmm-memory-is-mapped | vmm-memory-in-order-of-a-stream) ways+=(valgrind) ;;
    *) ! whole || ways+=(valgrind) ;;
    esac
}

# compile FOLDER FLAG…: the library and the programs.
compile() {
    local folder=$1 source
    shift
    cuda_library "$folder" "$@" || give_up "the stand-in compiles ($folder)"
    for source in c-tests/cuda/tests/*.c; do
        "${there[@]}" gcc "${cuda_flags[@]}" -O1 "$@" "$source" -o "$folder/$(basename "$source" .c)" "$folder/libcuda.so.1" \
            >"$log" 2>&1 || give_up "$(basename "$source") compiles ($folder)"
    done
}

compile "$work/plain"
[ "$host" != debian12 ] || compile "$work/asan" -O1 -fsanitize=address,undefined -fno-omit-frame-pointer

# case_of PROGRAM CASE LEDGERS VARIABLE=VALUE…: in all ways; LEDGERS processes say that nothing is left open.
case_of() {
    local program=$1 name=$2 ledgers=$3 way folder status runner line
    shift 3
    ways_of "$program-$name"
    for way in "${ways[@]}"; do
        line="$program: ${name//-/ }, $way"
        wanted "$line" || continue
        folder=$way runner=()
        if [ "$way" = valgrind ]; then
            folder=plain
            runner=(valgrind --quiet --read-inline-info=no --error-exitcode=99 --leak-check=no --trace-children=no)
        fi
        log=$work/$program-$name-$way.log
        c-tests/patience.sh 60 "${there[@]}" env LD_LIBRARY_PATH="$root/$work/$folder" ASAN_OPTIONS=detect_leaks=1:handle_segv=0 \
            HAWSER_CUDA_LEDGER="$root/$work/ledgers/$program-$name-$way" "$@" "${runner[@]}" "$root/$work/$folder/$program" "$name" >"$log" 2>&1 </dev/null
        status=$?
        if [ "$status" = 0 ]; then cuda_ledger "$work/ledgers/$program-$name-$way" "$ledgers" >>"$log" 2>&1 || status=ledger; fi
        check "$line" "$status"
    done
}

# The cases of a program that need no variable, and leave nothing.
for program in memory context stream ipc between vmm; do
    for name in $("${there[@]}" env LD_LIBRARY_PATH="$root/$work/plain" "$root/$work/plain/$program"); do
        case $program-$name in
        vmm-leaves-everything | between-a-child-leaves-it-open) ;; # below
        context-no-device) case_of "$program" "$name" 0 HAWSER_CUDA_DEVICES=0 ;;
        context-names-lead-to-functions) case_of "$program" "$name" 0 ;;
        context-peers) case_of "$program" "$name" 1 HAWSER_CUDA_DEVICES=3 "HAWSER_CUDA_PEERS=0-1,1>2" ;;
        context-visible-devices) case_of "$program" "$name" 1 HAWSER_CUDA_DEVICES=4 \
            CUDA_VISIBLE_DEVICES=3,GPU-68617773-6572-2073-6f66-747761726501,9,0 ;;
        memory-memory-ends) case_of "$program" "$name" 1 HAWSER_CUDA_MEMORY=64 ;;
        stream-work-takes-time) case_of "$program" "$name" 1 HAWSER_CUDA_DELAY=30000 HAWSER_CUDA_BANDWIDTH=50 ;;
        stream-faults) case_of "$program" "$name" 1 \
            "HAWSER_CUDA_FAULTS=work:2:700,cuMemAlloc:3:2,cuEventCreate:2+:999,cuStreamCreate:*:2@1" ;;
        ipc-a-dead-owner) case_of "$program" "$name" 1 ;;
        ipc-others-may-not) case_of "$program" "$name" 2 HAWSER_CUDA_PEERS=none ;;
        ipc-instances-have-none) case_of "$program" "$name" 1 HAWSER_CUDA_MIG=1 ;;
        between-events-cross-processes) case_of "$program" "$name" 3 ;;
        ipc-* | between-*) case_of "$program" "$name" 2 ;;
        vmm-access-needs-a-way) case_of "$program" "$name" 1 HAWSER_CUDA_PEERS=none ;;
        vmm-*-exported) case_of "$program" "$name" 2 ;;
        *) case_of "$program" "$name" 1 ;;
        esac
    done
done

# left PROGRAM CASE LEDGERS THING…: the ledgers name these, each once, and no other.
left() {
    local program=$1 name=$2 ledgers=$3 prefix=$work/ledgers/$1-$2-left thing said
    shift 3
    log=$work/$program-$name-left.log
    "${there[@]}" env LD_LIBRARY_PATH="$root/$work/plain" HAWSER_CUDA_LEDGER="$root/$prefix" \
        "$root/$work/plain/$program" "$name" >"$log" 2>&1 </dev/null || return 1
    ! cuda_ledger "$prefix" "$ledgers" >>"$log" || return 1
    said=$(awk '$1 == "thing" && $NF != 0 { print $2, $NF }' "$prefix".*)
    for thing in "$@"; do
        grep -qx "$thing 1" <<<"$said" || { echo "$thing is not there" >>"$log"; return 1; }
    done
    [ "$(wc -l <<<"$said")" = $# ] || { echo "$said" >>"$log"; return 1; }
}
line="the ledger names what is left"
if wanted "$line"; then
    left vmm leaves-everything 1 contexts primary-contexts device-memory managed-memory host-memory registrations events streams \
        physical-memory reservations mappings pools pool-memory && grep -qx 'call cuMemAlloc_v2 1' "$work"/ledgers/vmm-leaves-everything-left.*
    check "$line" $?
fi
line="the ledger names what a process has left open of another's"
if wanted "$line"; then
    left between a-child-leaves-it-open 2 primary-contexts memory-opened events-opened
    check "$line" $?
fi

sum
