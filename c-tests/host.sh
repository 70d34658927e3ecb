# What the scripts that run jobs on a host share: how a command gets there, and how verdicts are
# counted. Sourced by them, in the root of the repository, with `words` set where there are any.

. c-tests/clock.sh

# Variables that Open MPI would take for options of ours.
for name in ${!OMPI_MCA_*} ${!PMIX_MCA_*} ${!PRTE_MCA_*}; do unset "$name"; done
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# Ranks that wait give their core away, and have none of their own: steps run side by side, and often
# on fewer cores than there are ranks. A rank that keeps its core holds up the one it waits for.
# HAWSER_POLL leaves both to the host.
if [ -z "${HAWSER_POLL:-}" ]; then
    export OMPI_MCA_mpi_yield_when_idle=1
    export OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_hwloc_default_binding_policy=none
fi

# whole: the whole matrix is wanted (`make test-all`), not what the code can tell apart.
whole() { [ -n "${HAWSER_WHOLE:-}" ]; }

passed=0 failed=0 lost=0 unended=0 words=()

# host_use debian12|debian13|here: sets `host`; `there`, the words before a command that runs on it; `root`,
# where the repository is there; `libraries`, the host's, and `stock`, its own components; `quiet`, what
# mpirun needs to hear besides a component path; `own`, the provider that has tagged messages over TCP
# by itself; `programs`, where what is compiled of c-tests/mpi lies, once for all steps. `here` is the Open MPI on PATH,
# whichever of both it is like: `host` says which.
host_use() {
    host=$1 quiet=() libraries=/usr/lib/x86_64-linux-gnu
    case $host in
    debian12)
        there=()
        root=$PWD
        stock=$libraries/openmpi/lib/openmpi3
        own=net
        ;;
    debian13)
        there=(tests/hosts/debian13.sh run --)
        root=/hawser
        stock=$libraries/openmpi/lib/openmpi40
        # PMIx reads the component path too, and would complain that ours are not its own.
        quiet=(--pmixmca mca_base_component_show_load_errors none)
        own=tcp
        ;;
    here)
        case $(mpirun --version 2>/dev/null) in
        *' 4.1.'*) host_use debian12 ;;
        *' 5.0.'*) host_use debian13 && there=() && root=$PWD ;;
        *) return 1 ;;
        esac || return 1
        stock=$(ompi_info --parsable --path pkglibdir | sed -n 's/^path:pkglibdir://p')
        libraries=$(dirname "$(dirname "$(dirname "$stock")")")
        return
        ;;
    *) return 1 ;;
    esac
    programs=target/c-tests/$host/programs
}

# wanted LINE: all words are in it.
wanted() {
    local word
    for word in ${words[@]+"${words[@]}"}; do
        case $1 in *"$word"*) ;; *) return 1 ;; esac
    done
}

ok() {
    passed=$((passed + 1))
    echo "ok $1"
}

# not_ok LINE [LOG]: shows how the log begins.
not_ok() {
    failed=$((failed + 1))
    echo "not ok $1"
    [ ! -e "${2-}" ] || tr -d '\0' <"$2" | head -n 40 | sed 's/^/    | /'
}

# check LINE STATUS: a verdict by the status of a command, on what is in `log`.
check() {
    if [ "$2" = 0 ]; then ok "$1"; else not_ok "$1 (status ${status:-none})" "${log-}"; fi
}

says() { grep -aqE -- "$1" "$log"; }

# is_lost: the host has lost a help text. Open MPI 4.1.4 does, its own as well.
is_lost() { says 'ORTE_ERROR_LOG: .*show_help\.c'; }

# retold COMMAND…: runs a job, which fills `log`; again, if the host has lost a help text and hawser has
# said nothing by itself.
retold() {
    local tries
    for tries in 1 2 3 4 5 6 7 8 9 10; do
        "$@"
        is_lost && ! says '\] hawser: ' || return 0
        lost=$((lost + 1))
    done
}

# sum: the last line, and the script's status.
sum() {
    [ "$lost" = 0 ] || echo "jobs that were run again because the host had lost a help text: $lost"
    [ "$unended" = 0 ] || echo "jobs that were run again because the host's launcher had not ended when all ranks had: $unended"
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ]
}

# give_up LINE: the script can do nothing.
give_up() {
    not_ok "$1" "${log-}"
    sum
    exit 1
}

# bare_library FILE: the library without what debuggers read, which AddressSanitizer and valgrind do anew in each process.
bare_library() {
    mkdir -p "$(dirname "$1")" && strip --strip-debug -o "$1" target/mca/libhawser.so && cp -f target/mca/help-hawser.txt "$(dirname "$1")"
}

# mpi_programs: all of c-tests/mpi that end well.
mpi_programs() { basename -s .c c-tests/mpi/*.c | grep -vxE "killed|closesock"; }

# mpi_compile PROGRAM…: of c-tests/mpi, into `programs`, where all steps of this host find them, with a
# link in `work`; says which it cannot.
mpi_compile() {
    local name made status=0
    mkdir -p "$programs"
    for name in "$@"; do
        made=$programs/$name
        ln -sfn "../programs/$name" "$work/$name"
        # Every source there includes headers of the same folder.
        [ ! -e "$made" ] || [ -n "$(find c-tests/mpi -newer "$made" -print -quit)" ] || continue
        # Steps that run side by side may want the same one: what lies there is whole.
        "${there[@]}" mpicc -std=gnu11 -O1 -Wall -Wextra -Wpedantic -Werror "c-tests/mpi/$name.c" -o "$made.$$" -lpthread \
            >"$work/logs/cc-$name" 2>&1 && mv "$made.$$" "$made" || { not_ok "$name compiles" "$work/logs/cc-$name"; status=1; }
    done
    return $status
}

# mpi_job LINE RANKS "PROGRAM ARGUMENT…" WORD…: a job with hawser first on the component path; its
# program must say `PASS`. What it has written is in `log` then.
mpi_job() {
    local line=$1 ranks=$2 begin=$SECONDS status
    local -a command
    read -ra command <<<"$3"
    shift 3
    wanted "$line" || return 0
    log=$work/logs/$(tr -c 'a-z0-9\n' - <<<"$line")
    c-tests/patience.sh 180 "${there[@]}" mpirun --oversubscribe -n "$ranks" \
        --mca mca_base_component_path "$root/target/mca:$stock" "${quiet[@]}" "$@" \
        "$root/$work/${command[0]}" "${command[@]:1}" >"$log" 2>&1 </dev/null
    status=$?
    if [ "$status" = 0 ] && grep -qx "PASS ${command[0]}" "$log"; then
        ok "$line ($((SECONDS - begin)) s)"
    else
        not_ok "$line (status $status, $((SECONDS - begin)) s)" "$log"
    fi
}
