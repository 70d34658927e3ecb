#!/usr/bin/env bash
# mpi4py's own test suite on 2 ranks of a real mpirun, over hawser and over the host's own transports.
#
#     c-tests/mpi4py.sh debian12|debian13 [--with hawser|stock|ob1 …] [-- OPTION …]
#
# hawser (what runs when nothing is asked for) is target/mca (`make stage`), stock the host's own OFI
# MTL, ob1 Open MPI's shared memory: the measure of what the host itself can do. PROVIDER in the
# environment is the libfabric provider (net on debian12, tcp on debian13). What follows -- goes to
# the suite: `-- -i test_rma` runs one module; without it, and over hawser, the processes that a Python
# rank makes (mpi4py/processes.py) come first, over the MTL and over the usnic BTL. debian12 is this machine, debian13 the chroot that
# tests/hosts/debian13.sh keeps. mpi4py and what compiles it come from pip's index once, and each host
# compiles it with its own mpicc once, into the user's cache.
#
# A test counts once: failed if it failed on any rank, passed if it passed on one and failed on none.
# A skipped test counts neither way, nor does one of those named under `known` that fails. A test
# that takes longer than two minutes of a quiet machine (clock.sh) ends the run; a run that ends early has failed with the test in
# which each rank stopped. target/mpi4py/HOST/WITH keeps what the ranks said (rank0, rank1) and every
# test's outcome and seconds (tests0, tests1). The last line is `N passed, N failed`, the sum of all.
set -u
cd "$(dirname "$0")/.." || exit 2

mpi4py=4.1.2
tools="setuptools==84.2.1 build==1.6.1 packaging==26.3 pyproject_hooks==1.3.3 Cython==3.3.1"
slowest=120 longest=900

# What fails for a fault of the host's own, on ob1 or over any OFI MTL: HOST TEST REASON.
known="
debian13 test_ulfm.TestULFMInter.testRevoke Open MPI 5.0's pml cm does not revoke communicators, with stock neither
debian13 test_ulfm.TestULFMSelf.testRevoke Open MPI 5.0's pml cm does not revoke communicators, with stock neither
debian13 test_ulfm.TestULFMWorld.testRevoke Open MPI 5.0's pml cm does not revoke communicators, with stock neither
"

# What ends or blocks the whole run for a fault of the host's own is left out: HOST[:PROVIDER] PATTERN
# REASON. With a provider it counts only for hawser and stock over that provider.
left_out="
debian12 test_spawn.* a spawned process now and then waits for ever in PMIx_Init for Open MPI 4.1's mpirun, on ob1 too
debian13 test_spawn.TestSpawnMultiple*.* Open MPI 5.0's mpirun crashes, on ob1 too
debian13:tcp test_spawn.* libfabric's xnet_process_connreq (remote_pid of a former peer) now and then closes a connection that is in use, with stock too; not so over tcp;ofi_rxm
"

usage() { echo "usage: $0 debian12|debian13 [--with hawser|stock|ob1 …] [-- OPTION …]" >&2; exit 2; }

[ $# -ge 1 ] || usage
host=$1
shift
withs=()
if [ "${1-}" = --with ]; then
    shift
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        case $1 in hawser | stock | ob1) withs+=("$1") ;; *) usage ;; esac
        shift
    done
    [ ${#withs[@]} -gt 0 ] || usage
fi
[ $# -eq 0 ] || [ "$1" = -- ] || usage
extra=("${@:2}")
[ ${#withs[@]} -gt 0 ] || withs=(hawser)

. c-tests/host.sh

host_use "$host" || usage
case $host in
debian12)
    there=(env PATH=/usr/bin:/bin)
    mtl=ofi
    over_ob1=(--mca pml ob1 --mca btl self,vader)
    ;;
debian13)
    mtl=hawser
    over_ob1=(--mca pml ob1 --mca btl "self,sm,tcp" --mca btl_tcp_if_include lo)
    ;;
esac
provider=${PROVIDER:-$own}
over_hawser=(--mca mca_base_component_path "$root/target/mca:$stock" "${quiet[@]}" --mca pml cm --mca mtl $mtl
    --mca mtl_${mtl}_provider_include "$provider")
over_stock=(--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include "$provider")

# What pip's index has, and what each host has compiled of it, is kept for all checkouts, by what it was
# made of; the rest lies in `work`.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/hawser
files=$cache/mpi4py-$mpi4py-$(printf '%s' "$tools" | sha256sum | cut -c 1-12)
store=target/mpi4py
work=$store/$host
suite=$work/mpi4py-$mpi4py
python=$root/$work/venv/bin/python
mkdir -p "$work" "$cache"

# The sdist and what compiles it. The second host has no pip configuration: it builds from a copy.
fetch() {
    local log=$work/fetch.log pip
    [ ! -e "$files/mpi4py-$mpi4py.tar.gz" ] || return 0
    echo "mpi4py $mpi4py: fetching (log: $log)"
    pip=$(mktemp -d)
    rm -rf "$files.new" && mkdir -p "$files.new"
    # shellcheck disable=SC2086 # a list of words
    {
        /usr/bin/python3 -m venv "$pip" &&
            "$pip/bin/pip" download --no-deps -d "$files.new" --only-binary :all: --implementation py --abi none --platform any $tools &&
            "$pip/bin/pip" download --no-deps -d "$files.new" --no-binary mpi4py "mpi4py==$mpi4py"
    } >"$log" 2>&1 || give_up "$host: mpi4py $mpi4py is fetched"
    rm -rf "$pip"
    mv -T "$files.new" "$files"
}

# made_for: what a compiled mpi4py depends on.
made_for() {
    "${there[@]}" mpicc -show && "${there[@]}" python3 --version && "${there[@]}" ompi_info --version && "${there[@]}" gcc -dumpfullversion
}

build() {
    local log=$work/build.log lock wheels there_files=$root/$work/files
    wheels=$files/$host-$(made_for 2>/dev/null | sha256sum | cut -c 1-12)
    # The hosts' steps run side by side, and so may other checkouts.
    exec {lock}>"$cache/mpi4py.lock"
    flock "$lock"
    fetch
    exec {lock}>&-
    exec {lock}>"$files/$host.lock"
    flock "$lock"
    if [ "$(cat "$work/complete" 2>/dev/null)" != "$wheels" ]; then
        rm -rf "$work/venv" "$work/files" "$suite"
        cp -r "$files" "$work/files"
        : >"$log"
        "${there[@]}" python3 -m venv "$root/$work/venv" >>"$log" 2>&1 || give_up "$host: a venv is made"
        if ! ls "$wheels"/*.whl >>"$log" 2>&1; then
            echo "$host: building mpi4py $mpi4py with mpicc (log: $log)"
            "${there[@]}" env -u PIP_FIND_LINKS CFLAGS=-O0 MPICC=mpicc "$python" -m pip wheel --no-cache-dir --no-index --no-deps \
                --find-links "$there_files" --no-binary mpi4py -w "$there_files/wheels" "mpi4py==$mpi4py" >>"$log" 2>&1 ||
                give_up "$host: mpi4py $mpi4py is built"
            rm -rf "$wheels.new" && cp -r "$work/files/wheels" "$wheels.new" && mv -T "$wheels.new" "$wheels"
        fi
        rm -rf "$work/files/wheels" && cp -r "$wheels" "$work/files/wheels"
        "${there[@]}" env -u PIP_FIND_LINKS "$python" -m pip install --no-cache-dir --no-index --no-deps --find-links "$there_files/wheels" \
            --only-binary mpi4py "mpi4py==$mpi4py" >>"$log" 2>&1 && tar -xzf "$files/mpi4py-$mpi4py.tar.gz" -C "$work" >>"$log" 2>&1 ||
            give_up "$host: mpi4py $mpi4py is installed"
        rm -rf "$work/files"
        printf '%s\n' "$wheels" >"$work/complete"
    fi
    exec {lock}>&-
}

# The suite's own main program with a result class that writes, for each test, `begin TEST` and
# `end TEST passed|skipped|failed SECONDS` into FOLDER/testsRANK, and `done` at the end.
recorder() {
    cat <<'PYTHON'
import os, socket, sys, time, traceback, unittest

folder, suite = sys.argv[1:3]
del sys.argv[1:3]
rank = os.environ["OMPI_COMM_WORLD_RANK"]
record = open(os.path.join(folder, "tests" + rank), "w", buffering=1)
record.write(f"pid {os.getpid()}\n")
sys.path.insert(0, suite)
sys.dont_write_bytecode = True
import main

try:
    socket.getaddrinfo(socket.gethostname(), None)
except OSError:  # a chroot need not know the machine's name
    socket.gethostname = lambda: "localhost"


class Result(unittest.TextTestResult):
    def note(self, outcome):
        self.outcomes.add(outcome)

    def show(self, err):  # at once: the list at the end is lost where the run does not come to its end
        traceback.print_exception(*err)

    def startTest(self, test):
        self.outcomes, self.begin = set(), time.monotonic()
        record.write(f"begin {test.id()}\n")
        super().startTest(test)

    def stopTest(self, test):
        super().stopTest(test)
        outcome = next((o for o in ("failed", "skipped", "passed") if o in self.outcomes), "failed")
        record.write(f"end {test.id()} {outcome} {time.monotonic() - self.begin:.2f}\n")

    def addSuccess(self, test):
        self.note("passed")
        super().addSuccess(test)

    def addSkip(self, test, reason):
        if hasattr(self, "outcomes"):
            self.note("skipped")
        super().addSkip(test, reason)

    def addFailure(self, test, err):
        self.note("failed")
        self.show(err)
        super().addFailure(test, err)

    def addError(self, test, err):
        self.show(err)
        if isinstance(test, unittest.TestCase):
            self.note("failed")
        else:  # what comes before or after a class or a module
            record.write(f"end {test.id().replace(' ', '')} failed 0\n")
        super().addError(test, err)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.note("failed")
            self.show(err)
        super().addSubTest(test, subtest, err)

    def addExpectedFailure(self, test, err):
        self.note("skipped")
        super().addExpectedFailure(test, err)

    def addUnexpectedSuccess(self, test):
        self.note("failed")
        super().addUnexpectedSuccess(test)


class Runner(unittest.TextTestRunner):
    resultclass = Result

    def run(self, test):
        result = super().run(test)
        record.write("done\n")
        return result


sys.argv[0] = os.path.join(suite, "main.py")
main.main(module=None, testRunner=Runner)
PYTHON
}

# served WITH: whether a rank, asked itself, runs over what is meant to be tested.
served() {
    local said
    said=$(c-tests/patience.sh 120 "${there[@]}" mpirun --oversubscribe -n 1 "${options[@]}" "$python" -c '
from mpi4py import MPI
files = {line.split()[-1] for line in open("/proc/self/maps") if "/" in line}
print("hawser:", *sorted(f for f in files if "hawser" in f.split("/")[-1]))' 2>&1 </dev/null)
    case $1 in
    hawser) [[ $said == *"hawser: $root/target/mca/libhawser.so"* ]] ;;
    *) printf '%s\n' "$said" | grep -qx 'hawser: *' ;;
    esac && return
    printf '%s\n' "$said" | tail -n 20
    echo "$host $1: no rank can be started over it"
    return 1
}

# tally LOGS: of both ranks' records, `OUTCOME TEST` a line, and `stopped TEST rank N` for an early end.
tally() {
    awk '
        FNR == 1 { rank = substr(FILENAME, length(FILENAME)) }
        $1 == "begin" { at[rank] = $2 }
        $1 == "end" { seen[$2] = seen[$2] " " $3; at[rank] = "" }
        $1 == "done" { done[rank] = 1 }
        END {
            for (test in seen) print (seen[test] ~ /failed/ ? "failed" : seen[test] ~ /passed/ ? "passed" : "skipped"), test
            for (rank = 0; rank < 2; rank++) if (!done[rank]) print "stopped", (at[rank] ? at[rank] : "between_tests"), "rank", rank
        }' "$1/tests0" "$1/tests1" | sort
}

# run WITH: the whole suite once; sets good and bad.
run() {
    local with=$1 logs=$work/$1 begin=$SECONDS pid status shown=0 skipped outcome last now=0
    local -n options=over_$with
    good=0 bad=1
    rm -rf "$logs" && mkdir -p "$logs"
    served "$with" || return

    local excluded=() where name reason
    while read -r where name reason; do
        case $where in
        "$host") ;;
        "$host:$provider") [ "$with" != ob1 ] || continue ;;
        *) continue ;;
        esac
        excluded+=(-x "$name")
        echo "$host $with: left out: $name ($reason)"
    done <<<"$left_out"

    # Half of the suite's time, and no message: the host's datatypes, by themselves.
    whole || [ ${#extra[@]} -gt 0 ] || excluded+=(-e test_datatype -e test_util_dtlib)

    # Each rank reports in files of its own.
    recorder >"$logs/recorder.py"
    : >"$logs/tests0"
    : >"$logs/tests1"
    # shellcheck disable=SC2016 # for the shell that each rank starts with
    c-tests/patience.sh "$longest" "${there[@]}" mpirun --oversubscribe -n 2 "${options[@]}" \
        sh -c 'log=$1; shift; exec "$@" 2>"$log/rank$OMPI_COMM_WORLD_RANK"' sh "$root/$logs" \
        "$python" -X faulthandler "$root/$logs/recorder.py" "$root/$logs" "$root/$suite/test" \
        -v "${excluded[@]}" "${extra[@]}" >"$logs/mpirun" 2>&1 </dev/null &
    pid=$!
    clock_start
    while kill -0 "$pid" 2>/dev/null; do
        sleep 1
        clock_read
        last=$now now=$(cat "$logs/tests0" "$logs/tests1" | wc -l)
        [ "$now" = "$last" ] || clock=0
        # Python shows where it is before it dies.
        [ "$clock" -lt $((slowest * 1000)) ] || { kill -ABRT $(sed -n 's/^pid //p' "$logs/tests0" "$logs/tests1") 2>/dev/null; clock=0; }
        shown=$((shown + 1))
        [ $((shown % 15)) -ne 0 ] || echo "$host $with: $((SECONDS - begin)) s, $(grep -c ^end "$logs/tests0") tests; now $(sed -n '$s/^begin //p' "$logs/tests0")"
    done
    wait "$pid"
    status=$?

    tally "$logs" >"$logs/tally"
    good=$(grep -c '^passed' "$logs/tally")
    skipped=$(grep -c '^skipped' "$logs/tally")
    bad=0
    while read -r outcome name where; do
        case $outcome in
        failed)
            reason=$(printf '%s\n' "$known" | sed -n "s/^$host $name  *//p")
            if [ -n "$reason" ]; then
                echo "$host $with: known: $name ($reason)"
            else
                echo "$host $with: failed: $name"
                bad=$((bad + 1))
            fi
            ;;
        stopped)
            echo "$host $with: $where did not finish (mpirun: $status); it stopped in $name"
            bad=$((bad + 1))
            ;;
        esac
    done <"$logs/tally"
    # A clean record with a bad end, as a crash in MPI_Finalize, is a failure too. A test that
    # failed, known or not, makes the ranks end with 1 by themselves.
    if [ "$status" -gt 1 ] || { [ "$status" -ne 0 ] && ! grep -q '^failed' "$logs/tally"; }; then
        tail -n 20 "$logs/mpirun"
        echo "$host $with: mpirun ended with $status"
        grep -q '^stopped' "$logs/tally" || bad=$((bad + 1))
    fi
    if [ $((good + bad)) -eq 0 ]; then
        echo "$host $with: no test ran"
        bad=1
    fi
    echo "$host $with: $good passed, $bad failed, $skipped skipped, $((SECONDS - begin)) s"
}

# processes NAME OPTION…: the processes that Python ranks make (c-tests/mpi4py/processes.py), over these.
processes() {
    local name=$1 folder=$work/processes-$1 log=$work/processes-$1/log status line count=0 mark marks=
    shift
    rm -rf "$folder" && mkdir -p "$folder" && mkfifo "$folder/word" || return
    # What is left running lives until this is closed; the ranks do not have it.
    exec 9<>"$folder/word"
    c-tests/patience.sh 300 "${there[@]}" mpirun --oversubscribe -n 2 --mca mca_base_component_path "$root/target/mca:$stock" \
        "${quiet[@]}" "$@" "$python" "$root/c-tests/mpi4py/processes.py" "$root/$folder" >"$log" 2>&1 </dev/null 9>&-
    status=$?
    [ "$status" != 0 ] || touch "$folder/over"
    exec 9>&-
    while read -r line; do
        ok "$host $name, a rank's processes: $line"
        count=$((count + 1))
    done < <(sed -n 's/^ok //p' "$log")
    [ "$status" = 0 ] && [ "$count" -gt 0 ] && grep -qx over "$log"
    check "$host $name, a rank's processes: the job ends; MPI_Finalize waits for none" $?
    for mark in popen popen-all fork system; do marks="$marks $folder/0.$mark $folder/1.$mark"; done
    # shellcheck disable=SC2086 # a list of words
    c-tests/patience.sh 60 sh -c 'for mark; do until [ -e "$mark" ]; do sleep 0.1; done; done' sh $marks
    check "$host $name, a rank's processes: those left running outlive the job" $?
}

build
case " ${withs[*]} " in
*" hawser "*)
    if [ ${#extra[@]} = 0 ]; then
        processes usnic --mca pml ob1 --mca btl usnic,self
        processes mtl --mca pml cm --mca mtl $mtl --mca mtl_${mtl}_provider_include "$provider"
    fi
    ;;
esac
for with in "${withs[@]}"; do
    run "$with"
    passed=$((passed + good)) failed=$((failed + bad))
done
sum
