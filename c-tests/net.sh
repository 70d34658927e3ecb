#!/usr/bin/env bash
# The MPI programs of c-tests/mpi between two and three hosts, over networks that lose, double and
# delay packets, or are slow, with mpirun launching across them.
#
#     c-tests/net.sh debian12|debian13 [WORD …]
#
# debian12 is this machine, debian13 the chroot that tests/hosts/debian13.sh keeps; the networks are
# those of c-tests/net/bed.sh. With words, only the runs whose line holds all of them. Each program
# checks itself, has a watchdog, and must say `PASS`; the network's counters must show that packets
# crossed it, that none was longer than its MTU, and that what was to happen to them did. Logs lie in
# target/c-tests/HOST/net/logs, and that of a failed run is shown. The last line is `N passed, N failed`.
#
#     HAWSER_BTL=tcp           another BTL than usnic; the host's own tests the tests
#     HAWSER_BTL_OPTIONS=…     more words for mpirun
set -u
cd "$(dirname "$0")/.." || exit 2
. c-tests/host.sh
. c-tests/net/bed.sh
. c-tests/net/job.sh

job_begin "$@"

# wrong: says what is, or nothing.
wrong() {
    local what
    [ "$status" = 0 ] || { echo "status $status"; return; }
    grep -qx "PASS $1" "$log" || { echo "no PASS"; return; }
    [ "$(bed_count seen)" -gt 100 ] || { echo "the network saw $(bed_count seen) packets"; return; }
    [ "$(bed_count long)" = 0 ] || { echo "$(bed_count long) packets were longer than $bed_packet"; return; }
    [ "$bed_rate" = unlimited ] || [ "$(bed_held)" -gt 0 ] || { echo "the network was not slow"; return; }
    if [ "$btl" != tcp ]; then
        # The ways were tried, short and long, there and back; and none of them is bad.
        [ "$(bed_count pings)" -ge 4 ] && [ "$(bed_count pongs)" -ge 4 ] || { echo "$(bed_count pings) pings, $(bed_count pongs) answers"; return; }
        ! grep -qE 'connectivity error|does not reach|no longer answers' "$log" || { echo "a false alarm"; return; }
    fi
    # Where the least share is expected to hit a packet thirty times, none is no chance.
    for what in "$bed_loss lost" "$bed_dup doubled" "$bed_reorder delayed"; do
        [ "${what% *}" = 0 ] || [ $(($(bed_count seen) * ${what% *})) -lt 3000 ] || [ "$(bed_count "${what#* }")" -gt 0 ] ||
            { echo "no packet was ${what#* }"; return; }
    done
}

# run HOSTS RANKS "PROGRAM ARGUMENT…" [OPTION …]
run() {
    local hosts=$1 ranks=$2 line reason begin=$SECONDS
    local -a command often=()
    read -ra command <<<"$3"
    shift 3
    # What is lost of the connectivity check is tried again while the job runs, for as long as usual.
    [ "$bed_loss" = 0 ] || [ "$btl" = tcp ] ||
        often=(--mca btl_usnic_connectivity_ack_timeout 10 --mca btl_usnic_connectivity_error_num_retries 1000)
    line="$condition, $hosts hosts, $ranks ranks: ${command[*]}${*:+ $*}"
    wanted "$btl $line" || return 0
    log=$work/logs/$(tr -c 'a-z0-9\n' - <<<"$btl $line")
    bed_rules
    job "$hosts" "$ranks" ${often[@]+"${often[@]}"} "$@" "$bed_root/$work/${command[0]}" "${command[@]:1}"
    reason=$(wrong "${command[0]}")
    if [ -z "$reason" ]; then
        ok "$line ($((SECONDS - begin)) s, $(bed_count seen) packets, $(bed_count lost) lost, $(bed_count doubled) doubled, $(bed_count delayed) delayed)"
    else
        not_ok "$line ($reason, $((SECONDS - begin)) s, $(bed_count seen) packets, $(bed_count lost) lost, $(bed_count doubled) doubled, $(bed_count delayed) delayed)" "$log"
    fi
    bed_sweep
}

# The longest messages in bytes, the rounds, and a word for programs that have a short form. TCP is
# slow where much is lost.
patience() { # patience LOSS
    long=$((64 << 20)) some=$((8 << 20)) rounds=10 whole= short=
    [ "$btl" != tcp ] || [ "$1" -lt 5 ] || long=$((1 << 20)) some=$((1 << 20))
    [ "$btl" != tcp ] || [ "$1" -lt 20 ] || some=5000 rounds=3 whole=5000 short=small
}

# under MTU LOSS DUP REORDER RATE: the network is so from now on.
under() {
    condition="mtu $1"
    [ "$2" = 0 ] || condition="$condition, loss $2 %"
    [ "$3" = 0 ] || condition="$condition, doubled $3 %"
    [ "$4" = 0 ] || condition="$condition, reordered $4 %"
    [ "$5" = unlimited ] || condition="$condition, $5"
    bed_mtu "$1" && bed_bad "$2" "$3" "$4" && bed_slow "$5" || not_ok "the network can be so: $condition"
    patience "$2"
}

all_programs() {
    run 2 2 "p2p $short"
    run 2 2 "sizes $long"
    run 2 2 "datatypes"
    run 2 2 "flood 1000"
    run 2 2 "bigmsg $long"
    run 2 4 "coll $short"
    run 2 4 "mixed $short"
    run 2 4 "alltoall $rounds $whole"
    run 3 3 "coll $short"
    run 3 6 "alltoall $rounds $whole"
    run 3 8 "alltoall 5 $whole"
}

some_programs() {
    run 2 2 "p2p $short"
    run 2 2 "sizes $some"
    run 2 4 "mixed $short"
    run 3 6 "alltoall $rounds $whole"
}

job_programs p2p sizes datatypes flood bigmsg coll mixed alltoall
job_network 3 2

# What a host can get wrong that the network does not change: its own protocols, and its ranks' places.
host_programs() {
    run 2 2 "p2p"
    run 2 2 "datatypes"
    run 2 2 "flood 1000"
    run 2 2 "bigmsg $long"
    run 3 3 "coll"
    run 3 8 "alltoall 5"
}

# The protocol below is the same on both hosts: what only the network changes is tried on one.
if whole || [ "$btl" = tcp ]; then
    under 1500 0 0 0 unlimited; all_programs
    under 1500 5 0 0 unlimited; all_programs
elif [ "$system" = debian12 ]; then
    under 1500 0 0 0 unlimited; all_programs
    under 1500 5 0 0 unlimited; some_programs
else
    under 1500 0 0 0 unlimited; host_programs
    under 1500 5 0 0 unlimited
    run 2 4 "mixed"
    run 3 6 "alltoall 10"
fi
if [ "$system" = debian12 ] || [ "$btl" = tcp ] || whole; then
    under 9000 0 0 0 unlimited; some_programs
    under 1500 1 0 0 unlimited; all_programs
    under 1500 20 0 0 unlimited; some_programs
    under 1500 0 5 0 unlimited; some_programs
    under 1500 0 0 5 unlimited; some_programs
    under 9000 5 5 0 unlimited; some_programs
    under 1500 1 2 3 unlimited; some_programs
    under 1500 0 0 0 1gbit
    run 2 2 "sizes $some"
    run 3 6 "alltoall 10"
    under 1500 0 0 0 100mbit
    run 2 2 "sizes $((1 << 20))"
    run 2 4 "mixed"
    run 3 6 "alltoall 4"
fi

# Two networks, and ways to name one.
under 1500 1 0 0 unlimited
[ "$system" != debian12 ] && ! whole || run 2 2 "sizes $some" --mca "btl_${btl}_if_include" e0,e1
run 3 6 "alltoall 10" --mca "btl_${btl}_if_include" e0,e1
run 2 2 "p2p small" --mca "btl_${btl}_if_include" 10.77.1.0/24
[ "$btl" = tcp ] || run 2 2 "p2p small" --mca btl_usnic_if_include fd77::/64

# Protected packets, on a network that loses them and on one that also doubles them.
if [ "$btl" != tcp ]; then
    run 3 6 "alltoall 10" --mca btl_usnic_protect_payload 1
    under 9000 5 5 0 unlimited
    run 2 4 "mixed $short" --mca btl_usnic_protect_payload 1
fi

# --- the connectivity check of usnic, over networks that are really bad

# verdict TEXT: the job that has just run ended as it must, and says why.
verdict() {
    local text
    text=$(tr -s ' \n' ' ' <"$log")
    [ "$status" != 0 ] && [ "$status" != 124 ] || { echo "status $status"; return; }
    ! grep -qE '^PASS|watchdog|Segmentation|panicked' "$log" || { echo "it went on"; return; }
    case $text in *"$1"*) ;; *) echo "it does not say: $1"; return ;; esac
    case $text in *"node1 (e0, "*) ;; *) echo "no node1"; return ;; esac
    case $text in *"node2 (e0, "*) ;; *) echo "no node2"; return ;; esac
}

# silent: the job ran well, and nothing was tried.
silent() {
    [ "$status" = 0 ] && grep -qx "PASS p2p" "$log" || { echo "status $status"; return; }
    [ "$(bed_count pings)" = 0 ] || echo "$(bed_count pings) pings"
}

# narrow HOSTS RANKS "PROGRAM ARGUMENT…": from the beginning there is a router between, with a hop of 1400 bytes,
# and nobody hears what it says of longer packets.
narrow() {
    local hosts=$1 ranks=$2 line="$condition, $1 hosts, $2 ranks, a silent hop of 1400 between: $3" reason= begin=$SECONDS
    local -a command
    read -ra command <<<"$3"
    wanted "$btl $line" || return 0
    log=$work/logs/$(tr -c 'a-z0-9\n' - <<<"$btl $line")
    bed_narrow 1400
    job "$hosts" "$ranks" "$bed_root/$work/${command[0]}" "${command[@]:1}"
    if [ "$status" != 0 ] || ! grep -qx "PASS ${command[0]}" "$log"; then
        reason="status $status"
    elif [ "$(bed_count lost)" = 0 ]; then
        reason="no packet was too long"
    elif grep -qE 'connectivity error|does not reach|no longer answers' "$log"; then
        reason="a false alarm"
    fi
    if [ -z "$reason" ]; then
        ok "$line ($((SECONDS - begin)) s, $(bed_count seen) packets, $(bed_count lost) objections kept back)"
    else
        not_ok "$line ($reason, $((SECONDS - begin)) s, $(bed_count seen) packets, $(bed_count lost) objections kept back)" "$log"
    fi
    bed_sweep
    bed_straight
}

# goes_on: the job ran well, and something was lost.
goes_on() {
    [ "$status" = 0 ] && grep -qx "PASS p2p" "$log" || { echo "status $status"; return; }
    [ "$(bed_count lost)" -gt 0 ] || echo "the path is wide"
}

# checked LINE FILTER JUDGE [TEXT] [OPTION …]: with this filter between the hosts from the beginning.
checked() {
    local begin=$SECONDS reason= line="usnic $1" filter=$2 judge=$3 text=$4
    shift 4
    wanted "$line" || return 0
    log=$work/logs/$(tr -c 'a-z0-9\n' - <<<"$line")
    bed_filter "$filter"
    CHECK_WATCHDOG=60 job 2 2 "$@" "$bed_root/$work/p2p" small
    reason=$($judge "$text")
    if [ -z "$reason" ]; then
        passed=$((passed + 1))
        echo "ok $line ($((SECONDS - begin)) s, $(bed_count pings) pings, $(bed_count pongs) answers)"
    else
        failed=$((failed + 1))
        echo "not ok $line ($reason, $((SECONDS - begin)) s, $(bed_count pings) pings, $(bed_count pongs) answers)"
        head -n 40 "$log" | sed 's/^/    | /'
    fi
    bed_sweep
    bed_filter
}

if [ "$btl" != tcp ]; then
    bed_mtu 1500 && bed_bad 0 0 0
    condition="mtu 1500"
    [ "$system" != debian12 ] && ! whole || narrow 2 4 "alltoall 20"
    soon=(--mca btl_usnic_connectivity_ack_timeout 50 --mca btl_usnic_connectivity_error_num_retries 10)
    checked "check: short datagrams arrive, long ones do not" "udp length > 1000" verdict \
        "datagrams of 32 bytes were answered, those of 1472 bytes were not, in 11 tries within 550ms" "${soon[@]}"
    # All answers are short: they must get through.
    checked "check: long datagrams arrive, short ones do not" "udp length < 1000 @th,64,32 != 0x51020000" verdict \
        "datagrams of 32 bytes were not, those of 1472 bytes were answered" "${soon[@]}"
    checked "check: no datagram arrives" "meta l4proto udp" verdict \
        "datagrams of 32 bytes were not, those of 1472 bytes were not" "${soon[@]}"
    # A hole that drops what is long, IP fragments too, and says nothing: not found by a check before, the protocol
    # finds its width.
    checked "a narrow path that says nothing" "meta length > 1300" goes_on "" --mca btl_usnic_connectivity_check 0
    checked "check: not wanted" "" silent "" --mca btl_usnic_connectivity_check 0
    checked "check: without time between tries there is none" "" silent "" --mca btl_usnic_connectivity_ack_timeout 0
fi

sum
