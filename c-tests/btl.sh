#!/usr/bin/env bash
# The MPI programs of c-tests/mpi over the usnic BTL, in a real mpirun, with `--mca btl usnic,self`.
#
#     c-tests/btl.sh debian12|debian13 [WORD …]
#
# debian12 is this machine, debian13 the chroot that tests/hosts/debian13.sh keeps. Needs target/mca
# (`make stage`). With words, only the runs whose line holds all of them. Each program checks itself,
# has a watchdog, and must say `PASS`. The last line is `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 2

libraries=/usr/lib/x86_64-linux-gnu/openmpi/lib
case ${1-} in
debian12)
    there=()
    root=$PWD
    stock=$libraries/openmpi3
    quiet=()
    ;;
debian13)
    there=(tests/hosts/debian13.sh run --)
    root=/hawser
    stock=$libraries/openmpi40
    # PMIx reads the component path too, and would complain that ours are not its own.
    quiet=(--pmixmca mca_base_component_show_load_errors none)
    ;;
*)
    echo "usage: $0 debian12|debian13 [WORD …]" >&2
    exit 2
    ;;
esac
host=$1
shift
words=("$@")
work=target/c-tests/$host/btl
mkdir -p "$work/logs" || exit 2

# Variables that Open MPI would take for options of ours.
for name in ${!OMPI_MCA_*} ${!PMIX_MCA_*} ${!PRTE_MCA_*}; do unset "$name"; done
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

passed=0 failed=0

# run RANKS "PROGRAM ARGUMENT…" [OPTION …]
run() {
    local ranks=$1 begin=$SECONDS log line status program word
    local -a command
    read -ra command <<<"$2"
    shift 2
    program=${command[0]}
    line="usnic, $ranks ranks: ${command[*]} $*"
    for word in ${words[@]+"${words[@]}"}; do
        case $line in *"$word"*) ;; *) return ;; esac
    done
    log=$work/logs/$(tr -c 'a-z0-9\n' - <<<"$line")
    timeout --kill-after=10 180 "${there[@]}" mpirun --oversubscribe -n "$ranks" \
        --mca mca_base_component_path "$root/target/mca:$stock" "${quiet[@]}" --mca pml ob1 --mca btl usnic,self \
        "$@" "$root/$work/${command[0]}" "${command[@]:1}" >"$log" 2>&1 </dev/null
    status=$?
    if [ "$status" = 0 ] && grep -qx "PASS $program" "$log"; then
        passed=$((passed + 1))
        echo "ok $line ($((SECONDS - begin)) s)"
    else
        failed=$((failed + 1))
        echo "not ok $line (status $status, $((SECONDS - begin)) s)"
        head -n 30 "$log" | sed 's/^/    | /'
    fi
}

[ -e target/mca/libhawser.so ] || { echo "target/mca is missing: make stage"; echo "0 passed, 1 failed"; exit 1; }
for source in c-tests/mpi/*.c; do
    program=$(basename "$source" .c)
    [ "$program" != killed ] || continue
    "${there[@]}" mpicc -std=gnu11 -O1 -Wall -Wextra -Wpedantic -Werror "$source" -o "$work/$program" -lpthread >"$work/logs/cc" 2>&1 || {
        cat "$work/logs/cc"
        echo "not ok $program compiles"
        failed=$((failed + 1))
    }
done

for program in p2p datatypes persist "probe eager" "truncate eager" cancel tags comms "rma allocate" bigmsg "flood 10000" "threads 100" spawn "spawn ports"; do
    run 2 "$program"
done
for program in coll intercomm mixed "p2p small" tags; do run 4 "$program"; done
run 2 p2p --mca btl_usnic_protect_payload 1
run 2 p2p --mca btl_usnic_if_include lo
run 2 p2p --mca btl_usnic_if_include 127.0.0.0/8 --mca btl_usnic_base_udp_port 47100
run 2 p2p --mca btl_usnic_link libfabric --mca btl_usnic_if_include lo

# declines TEXT OPTION…: the job cannot run so, and this line says why.
declines() {
    local text=$1 log status
    shift
    log=$work/logs/declines
    timeout --kill-after=10 60 "${there[@]}" mpirun --oversubscribe -n 2 \
        --mca mca_base_component_path "$root/target/mca:$stock" "${quiet[@]}" --mca pml ob1 --mca btl usnic,self \
        "$@" "$root/$work/p2p" small >"$log" 2>&1 </dev/null
    status=$?
    if [ "$status" != 0 ] && [ "$status" != 124 ] && tr -s ' \n' ' ' <"$log" | grep -qF -- "$text"; then
        passed=$((passed + 1))
        echo "ok usnic declines: $*"
    else
        failed=$((failed + 1))
        echo "not ok usnic declines: $* (status $status)"
        head -n 30 "$log" | sed 's/^/    | /'
    fi
}
declines "btl_usnic_if_include names nonsuch0, but there is no such interface here" --mca btl_usnic_if_include nonsuch0
declines "btl_usnic_if_include and btl_usnic_if_exclude exclude each other" --mca btl_usnic_if_include lo --mca btl_usnic_if_exclude lo
declines "btl_usnic_link is pigeon; it must be auto, libfabric or socket" --mca btl_usnic_link pigeon
declines "btl_usnic_retrans_timeout is 0; it must be 1 to" --mca btl_usnic_retrans_timeout 0
declines "10.0.0.0/99" --mca btl_usnic_if_include 10.0.0.0/99

# Nobody asked for it: not a word, and not used.
log=$work/logs/unasked
timeout --kill-after=10 100 "${there[@]}" mpirun --oversubscribe -n 2 --mca mca_base_component_path "$root/target/mca:$stock" "${quiet[@]}" \
    --mca btl_base_verbose 100 --mca pml ob1 "$root/$work/p2p" small >"$log" 2>&1 </dev/null
status=$?
if [ "$status" = 0 ] && grep -qx "PASS p2p" "$log" && grep -q "init of component usnic returned failure" "$log" && ! grep -q "hawser.*lost" "$log"; then
    passed=$((passed + 1))
    echo "ok usnic offers nothing when nobody asks"
else
    failed=$((failed + 1))
    echo "not ok usnic offers nothing when nobody asks (status $status)"
    head -n 30 "$log" | sed 's/^/    | /'
fi

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
