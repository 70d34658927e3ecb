#!/usr/bin/env bash
# A panic in each entry of each component stops there: under a C main, the user reads which entry it
# was, what happened and where to report it, in one line, and nothing else; an entry that may decline
# does, and the job goes on without the component; any other ends the process. A panic in a function of
# the library's own C interface is a code, and ends nothing but its module.
#
#     c-tests/guard.sh debian12|debian13 [WORD …]
#
# debian12 is this machine, debian13 the chroot that tests/hosts/debian13.sh keeps. Builds a library of
# its own with the feature `provoke`, in which HAWSER_PROVOKE names the entry that panics; the shipped
# library knows nothing of it. With words, only the entries whose line holds all of them. The last line
# is `N passed, N failed`.
set -u
unset RUST_BACKTRACE
cd "$(dirname "$0")/.." || exit 2

. c-tests/host.sh
. c-tests/verbs/build.sh

host_use "${1-}" || { echo "usage: $0 debian12|debian13 [WORD …]" >&2; exit 2; }
shift
words=("$@")
work=target/c-tests/$host/guard
log=$work/log
mkdir -p "$work/mca" || exit 2

"${CARGO:-cargo}" build --quiet --profile probe --lib --features provoke,loop >"$log" 2>&1 || give_up "the library builds with provoked panics"
cp -f target/probe/libhawser.so "$work/mca/libhawser.so"
components=$(pkgconfig/components.sh 2>"$log") || give_up "the list of components is read"
for name in $components; do ln -sf libhawser.so "$work/mca/mca_$name.so"; done

headers="-isystem $libraries/openmpi/include -isystem $libraries/openmpi/include/openmpi -Ic-tests/layout/stubs -isystem $libraries/pmix2/include"
[ "$host" = debian13 ] || headers=${headers/-Ic-tests\/layout\/stubs/}
# shellcheck disable=SC2086 # a list of words
"${there[@]}" mpicc -std=gnu11 -O1 -Wall -Wextra -Werror $headers -o "$work/visit" c-tests/guard/visit.c -lopen-pal >"$log" 2>&1 || give_up "visit.c compiles"

# RDMA devices are the software stand-in's.
unset "${!HAWSER_VERBS_@}"
mkdir -p "$work/verbs" && verbs_libraries "$work/verbs" || give_up "the stand-in for the RDMA libraries compiles"
device=(-x "LD_LIBRARY_PATH=$root/$work/verbs" -x HAWSER_VERBS_DEVICES=roce_0=127.0.0.1/roce)

mkdir -p "$work/include" && ln -sfn ../../../../../include "$work/include/hawser" && ln -sf libhawser.so "$work/mca/libhawser.so.0"
"${there[@]}" gcc -std=c11 -O1 -Wall -Wextra -Wpedantic -Werror -I"$root/$work/include" -o "$work/poisoned" c-tests/guard/poisoned.c \
    -L"$root/$work/mca" -lhawser "-Wl,-rpath,$root/$work/mca" >"$log" 2>&1 || give_up "poisoned.c compiles"

# provoked ENTRY WORD…: a job in which this entry panics; fills `log` and `status`. Again, up to three times, if all its ranks
# have ended and the host's launcher has not: Debian 13's waits for itself in one of several hundred jobs in which two ranks abort
# at once.
provoked() {
    local entry=$1 tries
    shift
    for tries in 1 2 3; do
        c-tests/patience.sh -p "$work/visit" 90 "${there[@]}" env HAWSER_PROVOKE="$entry" mpirun --oversubscribe -n 2 \
            --mca mca_base_component_path "$root/$work/mca:$stock" "${quiet[@]}" -x HAWSER_PROVOKE \
            "$@" "$root/$work/visit" >"$log.raw" 2>&1 </dev/null
        status=$?
        [ "$status" = 123 ] || break
        unended=$((unended + 1))
    done
    [ "$status" != 123 ] || status=124
    tr -d '\0' <"$log.raw" >"$log"
}

# told ENTRY WHAT: the line is there, and no other word about the panic.
told() {
    says "hawser: a bug: $1 panicked: provoked \(src/error/panic\.rs:[0-9:]+\); $2; please report this line, " &&
        ! says "thread '|RUST_BACKTRACE|fatal runtime error|panic in a function that cannot unwind" &&
        ! grep -av "hawser: a bug: $1 panicked: provoked " "$log" | grep -q panicked
}

# ends COMPONENT WORD… -- ENTRY…: each of these ends the process.
ends() {
    local component=$1 options=() entry
    shift
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    for entry in "$@"; do
        wanted "$component $entry" || continue
        provoked "$component $entry" "${options[@]}"
        [ "$status" != 0 ] && [ "$status" != 124 ] && [ "$status" != 137 ] && ! says "^PASS visit" &&
            told "$component $entry" "the process is ended, because MPI cannot go on"
        check "$component $entry: a panic ends the process, with one line" $?
    done
}

# declines COMPONENT WORD… -- ENTRY…: after each of these the job goes on without the component.
declines() {
    local component=$1 options=() entry
    shift
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    for entry in "$@"; do
        wanted "$component $entry" || continue
        provoked "$component $entry" "${options[@]}"
        [ "$status" = 0 ] && says '^PASS visit' && told "$component $entry" "the component is not used"
        check "$component $entry: a panic declines, with one line" $?
    done
}

if wanted "the job itself"; then
    provoked nothing --mca pml ob1 --mca btl usnic,self
    [ "$status" = 0 ] && says '^PASS visit' && ! says panicked
    check "the job itself passes where nothing panics" $?
fi

declines mtl --mca mtl_hawser_provider_include $own -- register open query init close
ends mtl --mca pml cm --mca mtl hawser --mca mtl_hawser_provider_include $own -- \
    add_procs add_comm send isend irecv iprobe improbe imrecv cancel del_comm progress del_procs finalize

# Not asked for by name: the host ends a job that asks for a component which declines.
declines btl_usnic --mca pml ob1 -- register open init close
ends btl_usnic --mca pml ob1 --mca btl usnic,self -- \
    progress add_procs register_error alloc free prepare_src send sendi get register_mem deregister_mem flush \
    "pvar bound" "pvar value" "pvar device" dump del_procs finalize
# Without GET the PML writes long messages by PUT.
ends btl_usnic --mca pml ob1 --mca btl usnic,self --mca btl_usnic_flags 3 -- put

# Of shared memory too, which has one module.
declines btl_smcuda --mca pml ob1 -- register open init close
ends btl_smcuda --mca pml ob1 --mca btl smcuda,self -- \
    progress add_procs register_error alloc free prepare_src send sendi get register_mem deregister_mem flush dump \
    "pvar bound" "pvar value" del_procs finalize
ends btl_smcuda --mca pml ob1 --mca btl smcuda,self --mca btl_smcuda_flags 3 -- put

line="the job itself over verbs"
if wanted "$line"; then
    provoked nothing "${device[@]}" --mca pml ob1 --mca btl verbs,self --mca btl_verbs_ipaddr_include 127.0.0.0/8
    [ "$status" = 0 ] && says '^PASS visit' && ! says panicked
    check "$line passes where nothing panics" $?
fi

# Its connection thread has no guard: whoever waits for a connection hears that there is none.
line="btl_verbs connection thread"
if wanted "$line"; then
    provoked "$line" "${device[@]}" --mca pml ob1 --mca btl verbs,self --mca btl_verbs_ipaddr_include 127.0.0.0/8
    [ "$status" != 0 ] && [ "$status" != 124 ] && [ "$status" != 137 ] && ! says '^PASS visit' &&
        says 'hawser: a bug: the thread hawser-verbs panicked: provoked \(src/error/panic\.rs:[0-9:]+\); please report this line, ' &&
        says 'btl_verbs: rank [01] of job [0-9]+ is lost: nothing is connected any more in this process, because of a bug'
    check "$line: a panic is told, and the job ends" $?
fi

# Under both of its names; the host's own list leaves openib out.
for name in verbs openib; do
    over=("${device[@]}" --mca pml ob1 --mca "btl_${name}_ipaddr_include" 127.0.0.0/8)
    others=verbs
    [ $name = openib ] || others=openib
    declines btl_$name "${over[@]}" --mca btl ^uct,ofi,$others -- register open init close
    ends btl_$name "${over[@]}" --mca btl $name,self -- \
        progress add_procs register_error alloc free prepare_src send sendi get atomic_op atomic_fop atomic_cswap \
        register_mem deregister_mem flush dump "pvar bound" "pvar value" "pvar device" del_procs finalize
    ends btl_$name "${over[@]}" --mca btl $name,self --mca btl_${name}_flags 3 -- put
done

# poisons COMPONENT NAME ENTRY…: each of these, of the component that people read this name of.
poisons() {
    local component=$1 name=$2 entry
    shift 2
    for entry in "$@"; do
        wanted "$component $entry" || continue
        c-tests/patience.sh 60 "${there[@]}" env HAWSER_PROVOKE="$component $entry" "$root/$work/poisoned" "$name" "$entry" $own >"$log" 2>&1 </dev/null
        status=$?
        if [ "$status" = 0 ]; then
            says '^PASS$' || status=silent
            if [ "$entry" = nothing ]; then says . && ! says panicked; else told "$component $entry" "it answers nothing else any more"; fi || status=lines
        fi
        check "$component $entry: a panic is a code, with one line" "$status"
    done
}
poisons "hawser_mtl ofi" ofi nothing open register_parameters init progress close \
    limits add_peers del_peers peer_name send isend irecv iprobe improbe imrecv cancel counter finalize
# A device at an address of the loopback interface is one for it, too.
export HAWSER_VERBS_DEVICES=roce_0=127.0.0.1/roce
usual=("${there[@]}")
for name in smcuda usnic verbs; do
    [ $name != verbs ] || there+=(env "LD_LIBRARY_PATH=$root/$work/verbs")
    poisons "hawser_btl $name" $name nothing open register_parameters init module_at progress close \
        limits add_peers del_peers peer_name register_receive register_error alloc prepare_src free send sendi put get \
        register_memory register_device memory_key deregister_memory flush dump counter finalize
done
there=("${usual[@]}")
unset HAWSER_VERBS_DEVICES

rm -f "$log.raw"
# The libfabric provider: every entry that its sources name.
mkdir -p "$work/fi" && ln -sfn ../mca/libhawser.so "$work/fi/libgni-fi.so"
"${there[@]}" gcc -std=gnu11 -O1 -Wall -Wextra -Werror -Wno-deprecated-declarations c-tests/gni/panics.c -o "$work/panics" -lfabric >"$log" 2>&1 || give_up "panics.c compiles"
entries=$(sed -n 's/.*\(guard\|count\|size\|guard_or\|change\|value\)("\(fi_[^"]*\)".*/\2/p' src/provider/*.rs src/provider/*/*.rs | grep -vx fi_domain2 | sort -u)
[ -n "$entries" ] || give_up "the provider's entries are found"
while read -r entry; do
    line="gni $entry"
    wanted "$line" || continue
    c-tests/patience.sh 60 "${there[@]}" env HAWSER_PROVOKE="$line" FI_PROVIDER_PATH="$root/$work/fi" FI_PROVIDER=gni IPATH_NO_BACKTRACE=1 \
        "$root/$work/panics" "$entry" >"$log" 2>&1 </dev/null
    status=$?
    if [ "$status" = 0 ]; then says '^PASS$' && told "$line" "the call has failed" || status=silent; fi
    check "$line" "$status"
done <<<"$entries"

sum
