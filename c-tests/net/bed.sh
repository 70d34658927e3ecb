#!/usr/bin/env bash
# Several hosts on one machine, joined by real kernel networks that can be made bad.
#
#     c-tests/net/bed.sh [OPTION …] -- COMMAND …      runs a command on the first host
#
#     --on debian12|debian13   which system the hosts are: this machine (default) or the second host
#     --on cluster-debian12|cluster-debian13     those of tests/hosts/cluster.sh
#     --hosts N                how many, node1 … nodeN (default 2)
#     --rails N                networks for data that each has, e0 … (default 1)
#     --mtu N                  of those (default 1500)
#     --loss PERCENT           of the packets on them, in the switch
#     --dup PERCENT            of them come twice
#     --reorder PERCENT        of them take a slower way
#     --rate RATE              of each cable, in tc's words (100mbit)
#
# `mpirun` as COMMAND launches on all hosts, one rank per host in turn: the environment names the
# agent and the hosts. `--mca btl_tcp_if_include e0` and the like keep data on the networks for data.
# Scripts source this file, call `bed_enter "$@"` first, and have the functions below.
#
# A host is a process that sleeps in network, UTS and mount namespaces of its own; the bed itself is
# the switch, and the first process of a PID namespace. When it ends, however it ends, the kernel
# ends everything in it, and the namespaces with their devices go with the last process.
#
# Each host has m0 (10.78.0.N), by which daemons talk and names are found, and which is never bad;
# and e0, e1 … (10.77.RAIL.N, fd77:0:0:RAIL::N) for data. Devices cut what is longer than a packet
# before it leaves, as cables need it: loss hits packets, not segments of 64 KiB.
#
# Needs root, iproute2, nftables and procps.

# The words that ask for these namespaces.
bed_spaces=(unshare --net --uts --mount --pid --fork --kill-child --mount-proc)

# bed_able: says in one line why this machine cannot, if it cannot.
bed_able() {
    local word
    [ "$(id -u)" = 0 ] || { echo "no network bed here: it needs root for namespaces"; return 1; }
    for word in ip tc nft nsenter setpriv; do
        command -v $word >/dev/null || { echo "no network bed here: $word is missing (make setup installs it)"; return 1; }
    done
    "${bed_spaces[@]}" ip link add bed0 type veth peer name bed1 2>/dev/null || { echo "no network bed here: namespaces or veth are not allowed"; return 1; }
}

# bed_enter ARGUMENT…: goes on with this script as the bed. Outside, it only waits for the end.
bed_enter() {
    local status
    if [ -n "${BED_INSIDE-}" ] && [ $$ = 1 ]; then
        unset BED_INSIDE
        return
    fi
    BED_INSIDE=1 setpriv --pdeathsig KILL "${bed_spaces[@]}" "$0" "$@" <&0 &
    bed_child=$!
    # Not by name and not to a group: what is killed is the one process that holds the bed.
    trap 'kill -KILL "$bed_child" 2>/dev/null; exit 130' INT TERM HUP
    wait "$bed_child"
    status=$?
    trap - INT TERM HUP
    exit $status
}

# bed_make SYSTEM HOSTS [RAILS]
bed_make() {
    local host rail ready launch self
    bed_system=$1 bed_hosts=$2 bed_rails=${3:-1}
    bed_loss=0 bed_dup=0 bed_reorder=0 bed_rate=unlimited bed_packet=1500 bed_drop=
    bed_pids=()
    self=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
    case $bed_system in
    debian12) launch=() bed_root=$self ;;
    debian13) launch=("$self/tests/hosts/debian13.sh" run --) bed_root=/hawser ;;
    cluster-*) launch=("$self/tests/hosts/cluster.sh" "${bed_system#cluster-}" run --) bed_root=/hawser ;;
    *) echo "bed: no system $bed_system" >&2; return 1 ;;
    esac

    # The hosts. /dev/shm is each one's own, and so is /tmp, where we stay if we live there: processes of
    # several beds have the same numbers and hosts' names, which is all that mpirun's folders are called by.
    for ((host = 1; host <= bed_hosts; host++)); do
        # shellcheck disable=SC2016 # expanded there
        exec {ready}< <(
            export BED_HOST=node$host BED_HOSTS=$bed_hosts
            cd "$self" || exit
            exec unshare --net --uts --mount sh -c 'hostname "$BED_HOST" && exec "$@"' sh "${launch[@]}" sh -c '
                set -e
                mount -t tmpfs -o mode=1777 none /dev/shm
                mkdir -p /dev/shm/bed/here
                mount --bind . /dev/shm/bed/here
                mount -t tmpfs -o mode=1777 none /tmp
                case $PWD in /tmp/*) mkdir -p "$PWD" && mount --bind /dev/shm/bed/here "$PWD" && cd "$PWD" ;; esac
                echo "127.0.0.1 localhost" >/dev/shm/bed/hosts
                for n in $(seq '"$bed_hosts"'); do
                    echo "10.78.0.$n node$n" >>/dev/shm/bed/hosts
                    echo "node$n slots=1" >>/dev/shm/bed/hostfile
                done
                [ -e /etc/hosts ] || : >/etc/hosts
                mount --bind /dev/shm/bed/hosts /etc/hosts
                mount --bind /dev/null /etc/resolv.conf
                echo $$
                exec sleep infinity' </dev/null
        )
        read -r -u "$ready" bed_pids["$host"] || { echo "bed: node$host does not start" >&2; return 1; }
    done

    # The switch: a bridge per network, no address, no protocol of its own.
    sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
    ip link set lo up
    for ((rail = -1; rail < bed_rails; rail++)); do
        ip link add "switch$((rail + 1))" type bridge mcast_snooping 0 || return 1
        ip link set "switch$((rail + 1))" up
    done
    for ((host = 1; host <= bed_hosts; host++)); do
        # Addresses stay when a device goes down.
        nsenter --target "${bed_pids[$host]}" --net sysctl -qw net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6=0 \
            net.ipv6.conf.all.keep_addr_on_down=1 net.ipv6.conf.default.keep_addr_on_down=1
        bed_ip $host link set lo up
        bed_cable $host m0 switch0 "10.78.0.$host/24" || return 1
        for ((rail = 0; rail < bed_rails; rail++)); do
            bed_cable $host "e$rail" "switch$((rail + 1))" "10.77.$rail.$host/24" "fd77:0:0:$rail::$host/64" || return 1
        done
    done
    bed_rules || return 1

    # What mpirun of 4.1 and of 5.0 need to know. Ranks yield, and are not bound: the hosts share
    # the processors of one machine.
    export BED_PIDS="${bed_pids[*]}"
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_plm_rsh_agent=$bed_root/c-tests/net/agent.sh PRTE_MCA_plm_ssh_agent=$bed_root/c-tests/net/agent.sh
    export OMPI_MCA_oob_tcp_if_include=m0 PRTE_MCA_prte_if_include=m0
    export OMPI_MCA_orte_default_hostfile=/dev/shm/bed/hostfile PRTE_MCA_prte_default_hostfile=/dev/shm/bed/hostfile
    export OMPI_MCA_rmaps_base_mapping_policy=node:oversubscribe PRTE_MCA_rmaps_default_mapping_policy=node:oversubscribe
    export OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_hwloc_default_binding_policy=none
    export OMPI_MCA_mpi_yield_when_idle=1
}

# bed_cable HOST DEVICE BRIDGE ADDRESS…
bed_cable() {
    local host=$1 device=$2 bridge=$3 port=node$1$2 address
    shift 3
    ip link add "$port" type veth peer name "$device" netns "${bed_pids[$host]}" || return 1
    ip link set "$port" gso_max_segs 1 master "$bridge" up || return 1
    for address in "$@"; do
        case $address in
        *:*) bed_ip "$host" addr add "$address" dev "$device" nodad ;;
        *) bed_ip "$host" addr add "$address" dev "$device" ;;
        esac || return 1
    done
    bed_ip "$host" link set "$device" gso_max_segs 1 up
}

# bed_on HOST COMMAND…: runs a command on that host, in the repository.
bed_on() {
    local host=$1
    shift
    nsenter --target "${bed_pids[$host]}" --net --uts --mount --root --wd \
        env -u TMPDIR -u LD_LIBRARY_PATH LANG=C.UTF-8 HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

# bed_ip HOST WORD…: `ip` for that host's network, whatever is installed there.
bed_ip() {
    local host=$1
    shift
    nsenter --target "${bed_pids[$host]}" --net ip "$@"
}

# The ports of the switch that lead to the hosts' networks for data.
bed_ports() {
    local host rail
    for ((host = 1; host <= bed_hosts; host++)); do
        for ((rail = 0; rail < bed_rails; rail++)); do echo "node${host}e$rail"; done
    done
}

# The rules anew, with all counters at zero. What is counted: UDP and TCP on the networks for data,
# as it leaves the switch; of these, what was lost, doubled, delayed, or is longer than a packet may be,
# and pings of usnic's agents and their answers (src/wire/probe.rs). What `bed_drop` says, in words of
# nft, is lost whatever it is.
bed_rules() {
    local port
    {
        echo "table netdev bed"
        echo "delete table netdev bed"
        echo "table netdev bed {"
        for port in seen lost doubled delayed long pings pongs; do echo "counter $port { }"; done
        echo "chain data {"
        echo "counter name seen"
        echo "meta length > $((bed_packet + 14)) counter name long"
        echo "meta l4proto udp @th,64,32 0x51010000 counter name pings"
        echo "meta l4proto udp @th,64,32 0x51020000 counter name pongs"
        [ "$bed_loss" = 0 ] || echo "numgen random mod 1000 < $(bed_per_mille "$bed_loss") counter name lost drop"
        [ "$bed_reorder" = 0 ] || echo "numgen random mod 100 < $bed_reorder counter name delayed meta priority set 1:2"
        echo "}"
        for port in $(bed_ports); do
            echo "chain $port {"
            echo "type filter hook egress device \"$port\" priority 0"
            echo "policy accept"
            echo "meta l4proto { tcp, udp } jump data"
            [ -z "$bed_drop" ] || echo "$bed_drop counter name lost drop"
            [ "$bed_dup" = 0 ] || echo "meta l4proto { tcp, udp } numgen random mod 100 < $bed_dup counter name doubled dup to \"$port\""
            echo "}"
        done
        echo "}"
    } | nft -f -
}

# bed_per_mille PERCENT: which may have one decimal.
bed_per_mille() {
    case $1 in
    *.*) echo $((${1%.*} * 10 + ${1#*.})) ;;
    *) echo $(($1 * 10)) ;;
    esac
}

# bed_bad LOSS DUP REORDER, in percent, the loss with one decimal at most: from now on, counted from zero, and no
# longer slow.
bed_bad() {
    local port
    bed_loss=$1 bed_dup=$2 bed_reorder=$3 bed_rate=unlimited
    for port in $(bed_ports); do
        tc qdisc del dev "$port" root 2>/dev/null
        # A second queue that is served slowly: who goes there is overtaken.
        [ "$bed_reorder" = 0 ] || tc -batch - <<WORDS || return 1
qdisc add dev $port root handle 1: htb default 1
class add dev $port parent 1: classid 1:1 htb rate 10gbit quantum 9014
class add dev $port parent 1: classid 1:2 htb rate 20mbit quantum 9014
qdisc add dev $port parent 1:1 pfifo limit 1000
qdisc add dev $port parent 1:2 pfifo limit 100
WORDS
    done
    bed_rules
}

# bed_filter WORDS: what is lost from now on besides, in words of nft; nothing without words.
bed_filter() {
    bed_drop=$*
    bed_rules
}

# bed_slow RATE|unlimited: of each cable to a host; what does not fit in 64 KB is lost. After bed_bad,
# and not together with reordering, which needs the queue for itself.
bed_slow() {
    local port
    bed_rate=$1
    [ "$bed_rate" != unlimited ] || return 0
    [ "$bed_reorder" = 0 ] || { echo "bed: a cable is slow or reorders, not both" >&2; return 1; }
    for port in $(bed_ports); do
        tc qdisc replace dev "$port" root tbf rate "$bed_rate" burst 64kb latency 5ms || return 1
    done
}

# bed_mtu N: of the networks for data.
bed_mtu() {
    local host rail
    bed_packet=$1
    for ((rail = 0; rail < bed_rails; rail++)); do
        for ((host = 1; host <= bed_hosts; host++)); do
            ip link set "node${host}e$rail" mtu "$1" || return 1
            bed_ip "$host" link set "e$rail" mtu "$1" || return 1
        done
        ip link set "switch$((rail + 1))" mtu "$1" || return 1
    done
    bed_rules
}

# bed_whole: devices hand segments over as they get them, cut by nobody; as fast as veth goes.
bed_whole() {
    local host rail
    for ((host = 1; host <= bed_hosts; host++)); do
        for ((rail = 0; rail < bed_rails; rail++)); do
            ip link set "node${host}e$rail" gso_max_segs 65535 || return 1
            bed_ip "$host" link set "e$rail" gso_max_segs 65535 || return 1
        done
    done
}

# bed_narrow N: packets between the first two hosts go by the third one from now on, which is a router with a
# next hop of that MTU. What may not be cut into fragments vanishes there, and nobody is told: ICMP is lost.
bed_narrow() {
    local host
    nsenter --target "${bed_pids[3]}" --net sysctl -qw net.ipv4.ip_forward=1 \
        net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.e0.send_redirects=0 || return 1
    for host in 1 2; do bed_ip 3 route replace "10.77.0.$host/32" dev e0 mtu "$1" || return 1; done
    # Before the first packet goes that way: what is heard once is known for minutes.
    bed_filter "meta l4proto icmp" || return 1
    bed_ip 1 route replace 10.77.0.2/32 via 10.77.0.3 dev e0 || return 1
    bed_ip 2 route replace 10.77.0.1/32 via 10.77.0.3 dev e0
}

# bed_straight: as before bed_narrow.
bed_straight() {
    bed_ip 1 route del 10.77.0.2/32 2>/dev/null
    bed_ip 2 route del 10.77.0.1/32 2>/dev/null
    bed_filter
}

# bed_link HOST DEVICE up|down
bed_link() { bed_ip "$1" link set "$2" "$3"; }

# bed_count seen|lost|doubled|delayed|long|pings|pongs: packets so far.
bed_count() { nft list counter netdev bed "$1" | sed -n 's/.*packets \([0-9]*\) bytes.*/\1/p'; }

# bed_bytes: of what was seen.
bed_bytes() { nft list counter netdev bed seen | sed -n 's/.* bytes \([0-9]*\).*/\1/p'; }

# bed_held: packets that have waited for, or were lost to, the rate of a cable.
bed_held() {
    local port
    for port in $(bed_ports); do tc -s qdisc show dev "$port" root; done | sed -n 's/.*overlimits \([0-9]*\).*/\1/p' | awk '{ n += $1 } END { print n + 0 }'
}

# bed_sweep: ends what a job has left on the hosts. Processes count as a host's by their network.
bed_sweep() {
    local host entry pid
    for ((host = 1; host <= bed_hosts; host++)); do
        for entry in /proc/[0-9]*; do
            pid=${entry#/proc/}
            [ "$pid" != "${bed_pids[$host]}" ] && [ "$entry/ns/net" -ef "/proc/${bed_pids[$host]}/ns/net" ] || continue
            kill -KILL "$pid" 2>/dev/null
        done
    done
}

# Sourced: no more than the functions.
[ "${BASH_SOURCE[0]}" = "$0" ] || return 0

set -u
system=debian12 hosts=2 rails=1 mtu=1500 loss=0 dup=0 reorder=0 rate=unlimited
options=("$@")
while [ $# -gt 0 ]; do
    case $1 in
    --on) system=$2 ;;
    --hosts) hosts=$2 ;;
    --rails) rails=$2 ;;
    --mtu) mtu=$2 ;;
    --loss) loss=$2 ;;
    --dup) dup=$2 ;;
    --reorder) reorder=$2 ;;
    --rate) rate=$2 ;;
    --) shift; break ;;
    *) sed -n '2,/^#     --rate/s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
    shift 2
done
[ $# -gt 0 ] || { sed -n '2,/^#     --rate/s/^# \{0,1\}//p' "$0"; exit 2; }
bed_able || exit 1
bed_enter "${options[@]}"
bed_make "$system" "$hosts" "$rails" && bed_mtu "$mtu" && bed_bad "$loss" "$dup" "$reorder" && bed_slow "$rate" || exit 1
bed_on 1 "$@"
status=$?
printf 'network: %s packets' "$(bed_count seen)"
for what in lost doubled delayed long; do printf ', %s %s' "$(bed_count $what)" $what; done
echo
exit $status
