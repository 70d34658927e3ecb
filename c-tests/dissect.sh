#!/usr/bin/env bash
# The Wireshark dissector docs/hawser-usnic.lua, over captures of real jobs of the usnic BTL: every datagram is
# understood, and what it is said to be is what a job sends. Each job has a network of its own.
#
#     c-tests/dissect.sh
#
# Needs tshark, root, and target/mca (`make stage`). Logs lie in target/c-tests/debian12/dissect. The last line is
# `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 2

. c-tests/host.sh

host_use debian12
work=$PWD/target/c-tests/$host/dissect
rm -rf "$work"
mkdir -p "$work" || exit 2
command -v tshark >/dev/null || give_up "tshark is there (tests/setup.sh whole)"
mpicc -O2 bench/ring.c -o "$work/ring" >"$work/log" 2>&1 || give_up "the ring compiles"

# captured NAME OPTION…: the ring runs with these options, in a network of its own; what it sends is in NAME.pcapng.
captured() {
    # shellcheck disable=SC2016 # expanded there
    c-tests/patience.sh 120 unshare -n bash -c '
        ip link set lo up mtu 1500
        tshark -i lo -f udp -w "$1" 2>"$1.log" &
        capture=$!
        until grep -q "Capturing on" "$1.log" && [ -s "$1" ]; do kill -0 $capture || exit 1; done
        "${@:2}"
        status=$?
        # What is still on its way to the file comes before this.
        echo the-last-datagram >/dev/udp/127.0.0.1/9
        until grep -q the-last-datagram "$1"; do kill -0 $capture || exit 1; done
        kill -TERM $capture
        wait $capture
        exit $status' capture "$work/$1.pcapng" mpirun -n 2 --oversubscribe --mca mca_base_component_path "$root/target/mca:$stock" \
        --mca pml ob1 --mca btl usnic,self "${@:2}" "$work/ring" >"$work/$1.log" 2>&1 </dev/null
}

# seen NAME OPTION…: what tshark makes of it.
seen() { tshark -X lua_script:docs/hawser-usnic.lua -r "$work/$1.pcapng" "${@:2}" 2>"$work/$1.tshark"; }
# count NAME FILTER: datagrams of which that is true.
count() { seen "$1" -Y "$2" | wc -l; }

# looks_right NAME
looks_right() {
    check "$1: all but the last datagram is known" "$([ "$(count "$1" udp)" -gt 50 ] && [ "$(count "$1" 'udp and not hawser_usnic and not hawser_agent')" = 1 ]; echo $?)"
    check "$1: each datagram is understood to its end" "$([ "$(count "$1" '_ws.malformed or _ws.lua.error or hawser_usnic.padding')" = 0 ]; echo $?)"
    for kind in 1:Ack 2:Fragment 3:Chunk 9:Close 10:CloseAck; do
        check "$1: there is a packet of the kind ${kind#*:}" "$([ "$(count "$1" "hawser_usnic.kind == ${kind%:*}")" -gt 0 ]; echo $?)"
    done
    check "$1: pieces of a long message are told apart, also where the kernel is to part them" \
        "$([ "$(seen "$1" -T fields -e hawser_usnic.kind | tr ',' '\n' | grep -c '^[36]$')" -gt 1000 ]; echo $?)"
    check "$1: the peers introduce themselves, two names" \
        "$([ "$(seen "$1" -T fields -e hawser_usnic.name -Y hawser_usnic.long | tr ',' '\n' | sort -u | grep -c .)" = 2 ]; echo $?)"
}

captured plain
check "plain: the job runs" $?
looks_right plain
check "plain: what was sent is seen" "$([ "$(count plain 'hawser_usnic.payload contains 07:26:45:64:83:a2')" -gt 0 ]; echo $?)"
captured protected --mca btl_usnic_protect_payload 1
check "protected: the job runs" $?
looks_right protected
check "protected: it is not" "$([ "$(count protected hawser_usnic.payload)" = 0 ] && [ "$(count protected hawser_usnic.sealed)" -gt 0 ]; echo $?)"
sum
