#!/usr/bin/env bash
# The verbs BTL beside Open MPI 4.1's own openib, over the software stand-in for libibverbs and librdmacm (c-tests/verbs): what
# does not depend on the device under it.
#
#     bench/verbs.sh [--rounds N] [--parts P[,P...]]
#
# --rounds   of `first`, which alternates. 9
# --parts    instructions, of the component for an 8-byte message that is sent and one that is taken, and for a test that finds
#            nothing, under callgrind; first, what the first message to a peer takes more than a later one, how many bytes
#            are registered with the device meanwhile, and how much other memory a process has, for each peer that is idle or
#            connected. instructions,first
#
# On Debian 12 only: 5.0 has no such component of its own. Debian's openib has no rdma_cm; tests/rig/openib builds the same
# sources with it. It uses no address of 127.0.0.0/8, so that all runs in a network namespace: needs root. As RoCE: over iWARP
# it connects no processes of one machine. Both have the same queues, openib's own with the private one first, which rdma_cm
# needs.

root=$(cd "$(dirname "$0")/.." && pwd -P)
cd "$root" || exit 2

if [ "${1-}" = inside ]; then
    shift
    ip link set lo up && ip link add e0 type veth peer name e1 && ip addr add 10.97.0.1/24 dev e0 &&
        ip link set e0 up && ip link set e1 up || exit 1
else
    # Where it is fetched from is not to be had in there.
    tests/rig/openib >/dev/null || exit 1
    exec unshare -n "$0" inside "$@"
fi

. bench/host.sh
. bench/header.sh
. c-tests/verbs/build.sh

rounds=9 parts=instructions,first
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=$2; shift ;;
    --parts) parts=$2; shift ;;
    *) sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
    shift
done
[ "$host" = debian12 ] || die "$host has nothing to compare with"
[ -e "$mca/mca_btl_verbs.so" ] || die "$mca has no mca_btl_verbs.so: run make first"

host_use debian12
work=$results/verbs
log=$work/log
rm -rf "$work"
mkdir -p "$work/sys/class/infiniband"
openib=$(tests/rig/openib) || die "openib is not there"
openib=$(dirname "$openib")
verbs_libraries "$work" || die "the stand-in does not compile: $(cat "$log")"
for program in exchange first; do compile "$program"; done

# side verbs|openib: fills `options`, for mpirun, and `given`, for each program in it.
side() {
    local path=$mca queues=P,128,256,192,128:S,2048,1024,1008,64:S,12288,1024,1008,64:S,65536,1024,1008,64
    [ "$1" = verbs ] || path=$openib
    options=(--oversubscribe --bind-to none --mca mpi_yield_when_idle 1 --mca mca_base_component_path "$path:$stock"
        --mca pml ob1 --mca btl "$1,self" --mca "btl_$1_receive_queues" "$queues")
    given=(-x "LD_LIBRARY_PATH=$work" -x HAWSER_VERBS_DEVICES=roce_0=10.97.0.1/roce -x HAWSER_VERBS_STRICT=0
        -x "HAWSER_VERBS_SYSFS=$work/sys")
    rm -f "$work/meeting"
}

# job WORD…: an mpirun whose output is in `said`.
job() {
    timeout --kill-after=10 300 mpirun "$@" >"$work/said" 2>"$work/errors" </dev/null ||
        { cat "$work/said" "$work/errors" >&2; die "this failed: $*"; }
}

instructions() {
    local name case count component
    for name in openib verbs; do
        component=mca_btl_openib.so
        [ "$name" = openib ] || component=$(basename "$(readlink -f "$mca/mca_btl_verbs.so")")
        for case in message idle; do
            for count in 1600 4800; do
                side "$name"
                job "${options[@]}" "${given[@]}" -n 1 valgrind --tool=callgrind --fair-sched=yes --toggle-collect=measured \
                    --dump-instr=yes --compress-pos=no --callgrind-out-file="$work/callgrind.$name.$case.$count" \
                    "$results/exchange" "$work/meeting" "$case" "$count" : \
                    "${given[@]}" -n 1 "$results/exchange" "$work/meeting" "$case" "$count"
            done
        done
        python3 bench/report instructions --title "$host, $name over the stand-in, as RoCE" --component "$component" \
            --iterations 1600 4800 --cases message idle --prefix "$work/callgrind.$name" --log "$results/verbs.log" \
            --run "host=$host over=roce variant=$name"
    done
}

first() {
    local round name ranks
    : >"$work/firsts"
    for ((round = 1; round <= rounds; round++)); do
        printf '%s: round %d of %d\n' "$host" "$round" "$rounds" >&2
        for name in openib verbs; do
            for ranks in 2 5; do
                side "$name"
                job "${options[@]}" "${given[@]}" -n $ranks "$results/first" "$work/meeting"
                sed "s/^/$name /" "$work/said" >>"$work/firsts"
            done
        done
    done
    python3 - "$work/firsts" <<'PYTHON'
import statistics, sys
times, held = {}, {}
for line in open(sys.argv[1]):
    name, what, *words = line.split()
    values = {key: float(value) for key, value in (word.split("=") for word in words)}
    ranks = int(values["ranks"])
    if what != "first":
        for kind in {"bytes", "unregistered", "heap"} & values.keys():
            held.setdefault((kind, name, ranks, int(values["connected"])), []).append(int(values[kind]))
    elif ranks == 5:
        of = "the first peer" if values["peer"] == 1 else "each other peer"
        times.setdefault((of, name), []).append(values["us"] - values["again_us"])

def told(of, row):
    if row:
        print(f"  {of}: {statistics.median(row):.0f} ({min(row):.0f} to {max(row):.0f})")

def more(kind, name, ranks, connected, than):
    """What a process has more than with `than`, ranks and connected: a value for each round."""
    pairs = zip(held.get((kind, name, ranks, connected), []), held.get((kind, name, *than), []))
    return [one - other for one, other in pairs]

def rows(kind, name):
    idle = {"each idle peer": [bytes / 3 for bytes in more(kind, name, 5, 0, (2, 0))]}
    # What is in use of malloc is told where whole pages say too little, and nothing of it is registered.
    return idle if kind == "heap" else {
        "nobody is connected": held.get((kind, name, 5, 0), []),
        **idle,
        "the first connected peer": more(kind, name, 5, 1, (5, 0)),
        "each other connected peer": [bytes for peer in (2, 3, 4) for bytes in more(kind, name, 5, peer, (5, peer - 1))],
    }

print("\nThe first message to a peer, beyond a later one, µs: median (least to most)")
for of in ("the first peer", "each other peer"):
    for name in ("openib", "verbs"):
        told(f"{of}, {name}", times[of, name])
print("\nBytes registered by a process of 5, while so many others are connected: 0 to 4")
for name in ("openib", "verbs"):
    print(f"  {name}:", *(statistics.median_high(held["bytes", name, 5, count]) for count in range(5)))
print("\nMemory of a process, bytes: median (least to most). What is not registered includes all of Open MPI's,")
print("and the stand-in's own, which grows with what it is asked for")
for kind, what in (("bytes", "registered"), ("unregistered", "not registered"), ("heap", "in use of malloc")):
    beside = {name: rows(kind, name) for name in ("openib", "verbs")}
    for of in beside["openib"]:
        for name in beside:
            told(f"{what}, {of}, {name}", beside[name][of])
PYTHON
}

log_header env >"$results/verbs.log"
for part in ${parts//,/ }; do
    case $part in
    instructions | first) "$part" ;;
    *) die "no part $part" ;;
    esac
done | tee "$results/verbs.txt"
