#!/usr/bin/env bash
# The MPI programs of c-tests/mpi in MPICH, over the libfabric provider `gni`: MPICH 5.0's netmod `ofi` with the libfabric 2.5 that it
# brings along, and nothing of Open MPI.
#
#     c-tests/mpich.sh [WORD …]
#
# On this machine. Needs target/fi (`make stage`). With words, only the runs whose line holds all of them. MPICH comes from pip's index
# once, unpacked into the user's cache. Each program checks itself, has a watchdog, and must say `PASS`. The last line is
# `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 2

. c-tests/host.sh

words=("$@")
version=5.0.2
work=target/c-tests/mpich
mkdir -p "$work/logs" || exit 2
[ -e target/fi/libgni-fi.so ] || give_up "target/fi is staged: make stage"

# What fails in MPICH itself, over its own `tcp` and `shm` and over UCX as well: what a program may say and still have passed.
# Statuses of messages that came over a netmod say now and then that they were cancelled.
known='rank [0-9]+: cancelled: got 1, want 0 \['
# Not run, for the same reason: `persist` (the status of a request from MPI_PROC_NULL), `probe` (crashes), `truncate` (ends the job),
# `intercomm` (MPI_Bcast writes to the buffers of the root's group, too), `cancel` (which asks for what is known).

# fetch: fills `mpich`, where it is.
fetch() {
    local cache=${XDG_CACHE_HOME:-$HOME/.cache}/hawser pip lock
    mpich=$cache/mpich-$version
    mkdir -p "$cache"
    exec {lock}>"$cache/mpich.lock"
    flock "$lock"
    log=$work/logs/fetch
    if [ ! -e "$mpich/bin/mpiexec" ]; then
        echo "MPICH $version: fetching (log: $log)"
        pip=$(mktemp -d)
        {
            rm -rf "$mpich.new" && mkdir "$mpich.new" && /usr/bin/python3 -m venv "$pip" &&
                "$pip/bin/pip" download --no-deps --only-binary :all: -d "$pip" "mpich==$version" &&
                /usr/bin/python3 -m zipfile -e "$pip"/mpich-*.whl "$pip/files" &&
                cp -r "$pip/files/mpich-$version.data/data/." "$mpich.new" && chmod +x "$mpich.new"/bin/* && mv -T "$mpich.new" "$mpich"
        } >"$log" 2>&1 || give_up "MPICH $version is fetched"
        rm -rf "$pip"
    fi
    exec {lock}>&-
}

# job RANKS PROGRAM [ARGUMENT…]: fills `log` and `status`. No message goes by MPICH's own shared memory.
job() {
    local ranks=$1
    log=$work/logs/$(tr -c 'a-z0-9\n' - <<<"$*")
    shift
    env MPIR_CVAR_CH4_NETMOD=ofi MPIR_CVAR_NOLOCAL=1 MPIR_CVAR_DEBUG_SUMMARY=1 FI_PROVIDER=gni FI_PROVIDER_PATH="$PWD/target/fi" \
        c-tests/patience.sh 180 "$mpich/bin/mpiexec" -n "$ranks" "$work/$1" "${@:2}" >"$log" 2>&1 </dev/null
    status=$?
}

# run RANKS "PROGRAM ARGUMENT…": it passes, or all that it has against MPICH is known.
run() {
    local line="MPICH, gni, $1 ranks: $2" begin=$SECONDS passes=1 ranks=$1
    local -a command
    wanted "$line" || return 0
    read -ra command <<<"$2"
    job "$ranks" "${command[@]}"
    if says 'libfabric provider: gni'; then
        if [ "$status" = 0 ]; then
            says "^PASS ${command[0]}\$"
            passes=$?
        elif [ "$status" = 1 ] && ! says 'BAD TERMINATION|Segmentation|watchdog'; then
            # As many as there are of this, and no process has ended otherwise.
            says "^FAIL ${command[0]}: $(grep -aoE "$known" "$log" | wc -l) checks failed\$"
            passes=$?
        fi
    fi
    check "$line ($((SECONDS - begin)) s)" $passes
}

fetch
programs="p2p coll rma threads flood bigmsg comms tags ibsend mixed sessions sessions_threads alltoall unmatched datatypes"
for program in $programs; do
    log=$work/logs/cc-$program
    "$mpich/bin/mpicc" -std=gnu11 -O1 -include stddef.h -DCHECK_PRINTED_FAILURES=1000000 "c-tests/mpi/$program.c" -o "$work/$program" -Wl,-rpath,"$mpich/lib" -lpthread \
        >"$log" 2>&1 || not_ok "$program compiles" "$log"
done
for program in p2p rma "threads 100" "flood 500" comms; do run 2 "$program"; done
run 4 "coll small"
if whole; then
    for program in bigmsg tags ibsend sessions sessions_threads "alltoall 2 20000" datatypes; do run 2 "$program"; done
    for program in coll mixed "p2p small" "unmatched early"; do run 4 "$program"; done
fi
sum
