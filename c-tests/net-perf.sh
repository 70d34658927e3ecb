#!/usr/bin/env bash
# hawser-perf between two machines: each bench and operation over a network, one that loses packets, and one that goes.
#
#     c-tests/net-perf.sh debian12|debian13 [WORD …]
#
# debian12 is this machine, debian13 the chroot that tests/hosts/debian13.sh keeps; the network is that of
# c-tests/net/bed.sh: the programs meet on m0, and the data goes over e0. The last line is `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 2
. c-tests/host.sh
. c-tests/net/bed.sh
. c-tests/net/job.sh

job_begin "$@"
work=target/c-tests/$system/net-perf
log=$work/log
rm -rf "$work"
mkdir -p "$work" || exit 2
job_network 2

perf=$bed_root/target/release/hawser-perf
parameters=(--set btl_usnic_if_include=e0)
transport=usnic device=e0 iterations=200
# libfabric's TCP provider goes there, too.
run=(env FI_TCP_IFACE=e0 "$perf")

# serve OPTION…: a server on the second machine; sets `there`, its number, and `server`, that of what waits for it here.
serve() {
    rm -f "$work/pipe" && mkfifo "$work/pipe"
    # shellcheck disable=SC2016 # expanded there
    bed_on 2 sh -c 'echo $$ && exec "$@"' sh "${run[@]}" ${parameters[@]+"${parameters[@]}"} "$@" >"$work/pipe" 2>"$work/server-errors" </dev/null &
    server=$!
    exec 4<"$work/pipe"
    read -r there <&4
    # It says where it waits.
    read -r told <&4
}

# served: the server has ended, or is ended: after a client that has failed it waits for another.
served() {
    [ "$1" = 0 ] || kill "$there" 2>/dev/null
    wait "$server"
    ended=$?
    exec 4<&-
}

# figures BENCH OPERATION LENGTH…: whether `log` has them, of `device` of `transport`.
figures() {
    python3 - "$log" "$iterations" "$transport" "$device" "$@" <<'PYTHON'
import json, sys
path, iterations, transport, device, bench, operation, *lengths = sys.argv[1:]
found = json.load(open(path))
said = [found[key] for key in ("transport", "device", "bench", "operation")]
assert said == [transport, device, bench, operation], said
assert [one["bytes"] for one in found["results"]] == [int(length) for length in lengths], found["results"]
for one in found["results"]:
    assert one["iterations"] == int(iterations) and one["seconds"] > 0, one
    if bench == "latency":
        assert 0 < one["least_us"] <= one["median_us"] <= one["p99_us"], one
    else:
        assert one["messages_per_s"] > 0 and one["mb_per_s"] > 0, one
PYTHON
}

# measures LINE ADDRESS BENCH OPERATION "LENGTH …" OPTION…: from the first machine, to the second one's address. What
# is sent crosses the network for data.
measures() {
    local line=$1 address=$2 bench=$3 operation=$4 lengths=$5 before
    shift 5
    wanted "$line" || return 0
    before=$(bed_count seen)
    serve
    bed_on 1 "$bed_root/c-tests/patience.sh" 120 "${run[@]}" "$address" ${parameters[@]+"${parameters[@]}"} -t $transport -b "$bench" -o "$operation" \
        -s "${lengths// /,}" -n $iterations -w 5 --json "$@" >"$log" 2>"$work/errors" </dev/null
    status=$?
    served "$status"
    [ "$ended" = 0 ] || status=$status,$ended
    # shellcheck disable=SC2086 # a list of lengths
    if [ "$status" = 0 ]; then figures "$bench" "$operation" $lengths 2>>"$work/errors" || status=figures; fi
    if [ "$status" = 0 ] && [ $(($(bed_count seen) - before)) -lt $iterations ]; then status="elsewhere"; fi
    [ "$status" = 0 ] || cat "$work/errors" "$work/server-errors" >>"$log"
    check "$line" "$status"
}

for bench in latency bandwidth rate; do
    measures "$bench of messages" 10.78.0.2 $bench send "1 4097 100000"
    measures "$bench of PUTs" 10.78.0.2 $bench put "1 4096 100000"
    measures "$bench of GETs" 10.78.0.2 $bench get "1 4096 100000"
done
measures "a server that is found by IPv6" fd77::2 latency send "8" -6
measures "by the name of its machine" node2 latency send "8"
parameters+=(--set btl_usnic_protect_payload=1)
measures "encrypted, by a parameter on both machines" 10.78.0.2 bandwidth send "8 65536"
parameters=() transport=ofi device=libfabric
for bench in latency bandwidth rate; do
    measures "ofi: $bench of messages" 10.78.0.2 $bench send "1 4097 100000"
done
parameters=(--set btl_usnic_if_include=e0) transport=usnic device=e0
bed_bad 5 1 0
measures "bandwidth of messages, 5 % of the packets lost" 10.78.0.2 bandwidth send "1 4096 65536"
measures "latency of PUTs, 5 % of the packets lost" 10.78.0.2 latency put "1 65536"
bed_bad 0 0 0

line="nothing is left on either machine"
if wanted "$line"; then
    { bed_on 1 find /tmp -mindepth 2 ! -name door; bed_on 2 find /tmp -mindepth 2 ! -name door; } >"$log" 2>&1
    [ ! -s "$log" ]
    check "$line" $?
fi

# fails LINE PATTERN OPTION…: a client that ends with one line.
fails() {
    local line=$1 text=$2
    shift 2
    wanted "$line" || return 0
    serve
    bed_on 1 "$bed_root/c-tests/patience.sh" 120 "$perf" 10.78.0.2 -n 60 "$@" >"$work/out" 2>"$log" </dev/null
    status=$?
    served 1
    if [ "$status" = 1 ]; then status=0; else status="$status, not 1"; fi
    [ "$(grep -c '' "$log")" = 1 ] && says "^hawser-perf: .*$text" || status=line
    check "$line" "$status"
}
fails "each side says what the other one has not" "the other side: --set btl_usnic_if_include: it belongs to the component btl usnic, and -t smcuda does not have it" -t smcuda -s 8

# ends LINE PATTERN COMMAND…: the command, in the middle of it, and the client says what has come of it, in one line.
ends() {
    local line=$1 text=$2 client
    shift 2
    wanted "$line" || return 0
    rm -f "$work/client" && mkfifo "$work/client"
    serve --timeout 3
    bed_on 1 "$perf" 10.78.0.2 "${parameters[@]}" -t usnic -s 8 -n 10000000 --timeout 3 >"$work/client" 2>"$log" </dev/null &
    client=$!
    exec 3<"$work/client"
    # The head of its table: it begins to measure.
    read -r told <&3
    "$@"
    wait "$client"
    status=$?
    served 1
    exec 3<&-
    if [ "$status" = 1 ]; then status=0; else status="$status, not 1"; fi
    [ "$(grep -c '^hawser-perf: ' "$log")" = 1 ] && says "$text" || status=line
    check "$line" "$status"
}
ends "the network for data goes" "(nothing has come|has said nothing) for 3 s" bed_link 2 e0 down
bed_link 2 e0 up
kill_server() { kill -KILL "$there"; }
ends "the server is killed" "the other side (has ended|is lost)" kill_server

sum
