#!/usr/bin/env bash
# What users and administrators see of the usnic BTL between hosts: connectivity maps, and help texts
# about networks that are not as they should be.
#
#     c-tests/net-reports.sh debian12|debian13
#
# debian12 is this machine, debian13 the chroot that tests/hosts/debian13.sh keeps; the networks are
# those of c-tests/net/bed.sh. Logs lie in target/c-tests/HOST/net/logs; that of a failed check is
# shown. The last line is `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 2
. c-tests/host.sh
. c-tests/net/bed.sh
. c-tests/net/job.sh

job_begin "$@"
log=$work/logs/reports

# judge LINE STATUS: a verdict, after which nothing of the job is left.
judge() {
    check "$@"
    bed_sweep
}

# tells PATTERN: the log has it, wherever its lines break.
tells() { tr -s ' \n' ' ' <"$log" | grep -qE -- "$1"; }
works() { [ "$status" = 0 ] && grep -q "^PASS " "$log"; }

# told works|fails PATTERN PATTERN WORD…: such a job ends so and says both. Of what both ranks say
# Open MPI 5.0 shows only what comes first.
told() {
    local end=$1 first=$2 second=$3
    shift 3
    job 2 2 "$@"
    if [ "$end" = works ]; then works; else [ "$status" != 0 ] && [ "$status" != 124 ]; fi &&
        tells "$first" && tells "$second"
}

job_programs usnic_pvars
job_network 2 2
pvars=$bed_root/$work/usnic_pvars

# --- maps

mkdir -p "$work/maps"

# maps INTERFACES SIZE ADDRESS/LENGTH…: the maps of two hosts with these interfaces are as they should
# be. An address is without its last number.
maps() {
    local include=$1 size=$2 rank device line ways wrong=
    shift 2
    rm -f "$work/maps"/*
    job 2 2 --mca btl_usnic_if_include "$include" --mca btl_usnic_connectivity_map "$bed_root/$work/maps/map" "$pvars"
    works || return 1
    for rank in 0 1; do
        {
            echo "# Devices possibly used by this process:"
            device=0 ways=
            for line in "$@"; do
                echo "device=e$device,ip=${line%/*}$((rank + 1))/${line#*/},mss=$size"
                ways=$ways,device=e$device@peer_ip=${line%/*}$((2 - rank))/${line#*/}
                device=$((device + 1))
            done
            echo "# Endpoints used to communicate to each peer MPI process:"
            echo "peer=$((1 - rank)),hostname=node$((2 - rank))$ways"
        } >"$work/expected"
        diff "$work/expected" "$work/maps/map-node$((rank + 1))".pid*.job*.mcwrank$rank.txt >>"$log" 2>&1 || wrong="$wrong $rank"
    done
    [ -z "$wrong" ]
}
maps e0 1472 10.77.0./24
judge "the map names the peer's host and address" $?
maps e0,e1 1472 10.77.0./24 10.77.1./24
judge "with two networks, both ways" $?
maps fd77::/16 1452 fd77::/64 fd77:0:0:1::/64
judge "and IPv6 addresses with their prefixes" $?
for host in 1 2; do
    bed_ip $host addr del 10.77.0.$host/24 dev e0
    bed_ip $host addr add 10.77.0.$host/20 dev e0
done
maps e0 1472 10.77.0./20
judge "and prefixes of any length" $?
for host in 1 2; do
    bed_ip $host addr del 10.77.0.$host/20 dev e0
    bed_ip $host addr add 10.77.0.$host/24 dev e0
done

# --- statistics

job 2 2 --mca btl_usnic_if_include e0,e1 --mca btl_usnic_stats 60 "$pvars"
works && [ "$(grep -cE '^hawser: btl_usnic statistics final: rank [01] of job [0-9]+, e[01]: num_total_sends=[1-9]' "$log")" = 4 ]
judge "with two networks, each has a line of statistics, and both are used" $?

# --- help texts

# shellcheck disable=SC2016 # expanded there
apart=(sh -c '[ "$OMPI_COMM_WORLD_RANK" = 0 ] || export OMPI_MCA_btl_usnic_if_include=fd77::/64; exec "$1"' sh "$pvars")
# In the environment, so that the second rank can change it.
more=(-x OMPI_MCA_btl_usnic_if_include=10.77.0.0/24)
told fails "from (node1 \(e0 10\.77\.0\.1/24\) there is no way to rank 1 of job 1 on node2 \(fd77::2/64\)|node2 \(e0 fd77::2/64\) there is no way to rank 0 of job 1 on node1 \(10\.77\.0\.1/24\))\." "Either no route leads there" "${apart[@]}"
judge "a peer that no address leads to is named" $?
job 2 2 --mca btl_usnic_show_route_failures 0 "${apart[@]}"
[ "$status" != 0 ] && ! tells "there is no way to"
judge "unless btl_usnic_show_route_failures is 0" $?
more=()

bed_ip 2 link set e0 mtu 68
told fails "e0 10\.77\.0\.(1/24 takes datagrams of 1472 bytes and rank 1 of job 1 at 10\.77\.0\.2/24 of 40|2/24 takes datagrams of 40 bytes and rank 0 of job 1 at 10\.77\.0\.1/24 of 1472); the shorter one is too short" "so small that nothing useful fits" "$pvars"
judge "an MTU with which nothing can be sent" $?
bed_mtu 1500
bed_ip 2 addr add fd77::2/64 dev e0 nodad

bed_link 1 e1 down
told works "btl_usnic_if_include names e1 \(10\.77\.1\.1/24\), but this interface is down" "The job goes on with the others" --mca btl_usnic_if_include e0,e1 "$pvars"
judge "an interface that is down is spoken of, and the others are used" $?
told fails "btl_usnic_if_include names e1 \(10\.77\.1\.1/24\), but this interface is down" "The interface is not used" --mca btl_usnic_if_include e1 "$pvars"
judge "also when there is no other" $?
bed_link 1 e1 up

sum
