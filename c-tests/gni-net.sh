#!/usr/bin/env bash
# The libfabric provider `gni` between two nodes: the programs of c-tests/gni whose two processes are on one node in
# c-tests/gni.sh, and Open MPI across both.
#
#     c-tests/gni-net.sh debian12|debian13 [WORD …]
#
# debian12 is this machine, debian13 the chroot that tests/hosts/debian13.sh keeps; the nodes are network namespaces of
# c-tests/net/bed.sh. Needs target/mca and target/fi (`make stage`). With words, only the runs whose line holds all of them.
# A program must say `PASS`, and the network must have seen packets. Logs lie in target/c-tests/HOST/gni-net; that of a failed
# run is shown. The last line is `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 2

. c-tests/host.sh
. c-tests/net/bed.sh

host_use "${1-}" || { echo "usage: $0 debian12|debian13 [WORD …]" >&2; exit 2; }
bed_able || give_up "there can be a network here"
bed_enter "$@"
words=("${@:2}") system=$host
work=target/c-tests/$host/gni-net
log=$work/log
mkdir -p "$work/logs" || exit 2
[ -e target/fi/libgni-fi.so ] || give_up "target/fi is staged"

flags=(-std=gnu11 -g -O1 -Wall -Wextra -Werror -Wno-deprecated-declarations -pthread)
for name in messages rma atomics progress scalable faults; do
    "${there[@]}" gcc "${flags[@]}" "c-tests/gni/$name.c" -o "$work/$name" -lfabric >"$log" 2>&1 || give_up "$name.c compiles"
done
"${there[@]}" gcc "${flags[@]}" c-tests/gni/stranger.c -o "$work/stranger" >"$log" 2>&1 || give_up "stranger.c compiles"
mpi_compile p2p datatypes coll tags probe cancel bigmsg mixed || { sum; exit 1; }
bed_make "$system" 3 || give_up "the network is there"
exec {other}<"/proc/${bed_pids[2]}/ns/net"

# What both need: the provider and nothing else, by the network that is seen.
provider=("FI_PROVIDER_PATH=$bed_root/target/fi" FI_GNI_IFACE=e0 IPATH_NO_BACKTRACE=1)

# job LINE PROGRAM ARGUMENT…: one process on the first node, and the one that it makes on the second.
job() {
    local line="between nodes, $1" program=$2 begin=$SECONDS
    shift 2
    wanted "$line" || return 0
    log=$work/logs/$(tr -c 'a-z0-9\n' - <<<"$line")
    bed_rules
    bed_on 1 "$bed_root/c-tests/patience.sh" 120 env "${provider[@]}" FI_PROVIDER=gni "HAWSER_GNI_OTHER=$other" \
        "$bed_root/$work/$program" "$@" >"$log" 2>&1 </dev/null
    status=$?
    if [ "$status" = 0 ] && ! says '^PASS$'; then status=silent; fi
    if [ "$status" = 0 ] && [ "$(bed_count seen)" -lt 10 ]; then status="$(bed_count seen) packets"; fi
    check "$line ($((SECONDS - begin)) s)" "$status"
}

for name in lengths calls matching truncation peeks selection multiples floods death heirs farewell threads descriptors; do
    job "messages: $name" messages $name apart
done
for name in lengths multiples floods death heirs farewell threads descriptors; do
    job "messages, progress by itself: $name" messages $name apart auto
done
# Not questions of atomic operations: the provider answers them by itself, and nothing goes to another node.
for keys in offsets addresses; do
    for name in lengths calls refusals order fences events closing everything selection; do
        job "memory, by $keys: $name" rma $name apart $keys
    done
    for name in arithmetic calls refusals sums; do
        job "atomic operations, by $keys: $name" atomics $name apart $keys
    done
done
for name in computes queued threads; do job "progress by itself: $name" progress $name; done
for name in sleeps wakes room death; do job "progress by calls: $name" progress $name manual; done
# How much the kernels of both nodes hold of what is sent: the least, what a connection begins with, and the most.
holds() {
    local node
    for node in 1 2; do
        nsenter --target "${bed_pids[$node]}" --net sysctl -qw "net.ipv4.tcp_wmem=$1" "net.ipv4.tcp_rmem=$2" || give_up "kernels hold $1"
    done
}
begun=("$(nsenter --target "${bed_pids[1]}" --net sysctl -n net.ipv4.tcp_wmem)" "$(nsenter --target "${bed_pids[1]}" --net sysctl -n net.ipv4.tcp_rmem)")
holds "4096 16384 16384" "4096 8192 8192"
for name in gone room; do job "progress by calls, small buffers: $name" progress $name manual; done
job "progress by itself, small buffers: queued" progress queued
holds "${begun[@]}"
job "progress of connections by itself: control" progress control connections
for name in rights death; do job "memory: $name" rma $name apart offsets; done
for name in messages memory threads death; do job "scalable endpoints: $name" scalable $name apart; done
for name in lengths order events computes; do job "memory, progress by itself: $name" rma $name apart offsets auto; done

# What happens to the network meanwhile. A check that is wanted has a `line`, and says why it has failed.
enough=$PWD/$work/enough
begin() {
    line="between nodes, $1"
    wanted "$line" || return 1
    log=$work/logs/$(tr -c 'a-z0-9\n' - <<<"$line")
    started=$SECONDS why='' note=''
    rm -f "$enough"
    bed_rules
}

# launch WORD…: the program of c-tests/gni/faults.c, beside the check.
launch() {
    bed_on 1 "$bed_root/c-tests/patience.sh" 120 env "${provider[@]}" "${limit[@]}" FI_PROVIDER=gni "HAWSER_GNI_OTHER=$other" \
        "$bed_root/$work/faults" "$@" >"$log" 2>&1 </dev/null &
    running=$!
}

need() { [ -n "$why" ] || "$@" || why="failed: $*"; }

# crossing: two megabytes more cross the network, while the program runs.
crossing() {
    local far=$(($(bed_bytes) + 2000000))
    while [ "$(bed_bytes)" -lt "$far" ]; do
        kill -0 "$running" 2>/dev/null || return 1
        sleep 0.05
    done
}

passes() { wait "$running" && says '^PASS$'; }

# memory: pages of the program's processes.
memory() {
    local entry sum=0
    for entry in /proc/[0-9]*; do
        case $(readlink "$entry/exe" 2>/dev/null) in */faults) sum=$((sum + $(cut -d ' ' -f 2 "$entry/statm"))) ;; esac
    done
    echo $sum
}

# stranger udp|tcp: to all ports of that kind that the second node has on the network; fails where there are none.
stranger() {
    local -a ports
    mapfile -t ports < <(nsenter --target "${bed_pids[2]}" --net ss -Hln "--$1" | sed -nE 's/.* 10\.77\.0\.2:([0-9]+) .*/\1/p')
    [ ${#ports[@]} -gt 0 ] && bed_on 3 "$bed_root/c-tests/patience.sh" 60 "$bed_root/$work/stranger" 10.77.0.2 "$1" "${ports[@]}" >>"$log.$1" 2>&1
}

# modest PAGES: the processes have not grown by more than 2048 of them since.
modest() {
    note="$(($(memory) - $1)) pages more, of what strangers sent: $(tail -qn 1 "$log.udp" "$log.tcp" | tr '\n' ';')"
    [ $(($(memory) - $1)) -lt 2048 ]
}

# reached FROM TO: the first answers the second's packets, if only by that nobody listens.
reached() { LC_ALL=C bed_on "$1" timeout 2 bash -c ": </dev/tcp/10.77.0.$2/9" 2>&1 | grep -q refused; }

# finish: the verdict; and the network is there again for who comes next.
finish() {
    local tries
    kill "$running" 2>/dev/null && wait "$running"
    ip link set node2e0 up
    for tries in 1 2 3 4 5 6 7 8 9 10; do
        if reached 1 2 && reached 2 1; then break; fi
    done
    need reached 1 2
    if [ -z "$why" ]; then ok "$line ($((SECONDS - started)) s${note:+; $note})"; else not_ok "$line ($why; $((SECONDS - started)) s)" "$log"; fi
}

limit=(FI_GNI_PEER_TIMEOUT=30)
begin "a cable that is out for three seconds" && {
    launch goes-on "$bed_root/$work/enough"
    need crossing
    ip link set node2e0 down
    sleep 3
    ip link set node2e0 up
    need crossing
    : >"$enough"
    need passes
    finish
}

limit=(FI_GNI_PEER_TIMEOUT=3)
begin "a cable that is out for longer than a peer may be silent" && {
    launch ends 3
    need crossing
    ip link set node2e0 down
    need passes
    note=$(grep -E 'after .* s$' "$log" | tr '\n' ' ')
    finish
}

limit=(FI_GNI_PEER_TIMEOUT=2)
begin "a process that computes for longer than a peer may be silent" && {
    launch computes 12
    need passes
    finish
}

# Its window is closed when the network goes.
limit=(FI_GNI_PEER_TIMEOUT=3)
begin "a network that goes while a process computes" && {
    launch leaves 6
    sleep 4
    need [ "$(bed_bytes)" -gt 50000 ]
    ip link set node2e0 down
    need passes
    note=$(grep -E 'after .* s$' "$log" | tr '\n' ' ')
    finish
}

# deaf on|off: packets of TCP go nowhere, as the nodes are told; those of UDP come.
deaf() {
    local host
    for host in 1 2; do
        if [ "$1" = on ]; then
            nsenter --target "${bed_pids[$host]}" --net nft -f - <<'RULES' || return 1
table ip deaf {
    chain out {
        type filter hook output priority 0
        ip daddr 10.77.0.0/24 meta l4proto tcp reject with icmp type host-unreachable
    }
}
RULES
        else
            nsenter --target "${bed_pids[$host]}" --net nft delete table ip deaf || return 1
        fi
    done
}

limit=()
begin "a node that is not reached at first" && {
    need deaf on
    launch goes-on "$bed_root/$work/enough"
    sleep 3
    need deaf off
    need crossing
    : >"$enough"
    need passes
    finish
}

# wayless add|del: the kernel has no route for TCP from one node to the other, and says so at once.
wayless() {
    local host
    for host in 1 2; do
        nsenter --target "${bed_pids[$host]}" --net ip rule "$1" to 10.77.0.0/24 ipproto tcp priority 5 unreachable || return 1
    done
}

limit=()
begin "a node to which there is no route at first" && {
    need wayless add
    launch goes-on "$bed_root/$work/enough"
    sleep 3
    need wayless del
    need crossing
    : >"$enough"
    need passes
    finish
}

limit=()
begin "strangers write to all ports" && {
    rm -f "$log.udp" "$log.tcp"
    launch goes-on "$bed_root/$work/enough"
    need crossing
    before=$(memory)
    need stranger udp
    need stranger tcp
    need crossing
    need modest "$before"
    : >"$enough"
    need passes
    finish
}

# mpi LINE "PROGRAM ARGUMENT…" WORD…: two ranks, a node each.
mpi() {
    local line="between nodes, $1: $2" begin=$SECONDS
    local -a command
    read -ra command <<<"$2"
    shift 2
    wanted "$line" || return 0
    log=$work/logs/$(tr -c 'a-z0-9\n' - <<<"$line")
    bed_rules
    bed_on 1 "$bed_root/c-tests/patience.sh" 180 mpirun --host node1,node2 -n 2 -x FI_GNI_IFACE=e0 \
        -x "FI_PROVIDER_PATH=$bed_root/target/fi" --mca pml cm "$@" "$bed_root/$work/${command[0]}" "${command[@]:1}" >"$log" 2>&1 </dev/null
    status=$?
    if [ "$status" = 0 ] && ! says "^PASS ${command[0]}\$"; then status=silent; fi
    if [ "$status" = 0 ] && [ "$(bed_count seen)" -lt 100 ]; then status="$(bed_count seen) packets"; fi
    check "$line ($((SECONDS - begin)) s)" "$status"
}

programs="p2p coll tags mixed"
whole && programs="p2p datatypes coll tags probe cancel bigmsg mixed"
for command in $programs; do
    mpi "hawser's MTL" "$command" --mca mca_base_component_path "$bed_root/target/mca:$stock" "${quiet[@]}" \
        --mca mtl hawser --mca mtl_hawser_provider_include gni
done
# The host's own leaves part of a status of point-to-point messages unset.
mpi "the host's own MTL" coll --mca mtl ofi --mca mtl_ofi_provider_include gni

sum
