#!/usr/bin/env bash
# The verbs BTL beside Open MPI 4.1's own openib over real devices, rxe (RoCE) and siw (iWARP), between two nodes of the rig
# (tests/rig), and for orientation beside its tcp over the network under the device: in each round all three run once, in turn, all
# in one machine for each device; then the tables of bench/report. Losses are reported as plainly as wins. That machine has one
# processor, so that only ratios mean something. It is kept on one core outside, too: over two, each of its system calls takes
# several times as long whenever it and its process happen to be on different ones.
#
#     bench/rig.sh [--rounds N] [--devices D[,D]] [--quick] [-- WORD…]
#
# --rounds    5; in 6 there is each order of the three once
# --devices   rxe,siw
# --quick     2 rounds of few sizes: 1 and 64 B, 4 and 256 KiB, 4 MiB; otherwise 1 B to 4 MiB by factors of 4
# WORD…       more words for mpirun, for all
#
# A round of one device takes one to two minutes. The machine of a device is ended, and there is no table, after 300 s for each round,
# 200 with --quick (`tests/rig/vm -t`, where seconds count in part while more want to run than there are cores).
#
# On Debian 12 only, as bench/verbs.sh. Needs the rig's kernel (tests/rig/build-kernel), and builds openib (tests/rig/openib).
root=$(cd "$(dirname "$0")/.." && pwd -P)
cd "$root" || exit 2
. bench/host.sh
. bench/header.sh

# What the program runs with, one after the other: the last one's message rate counts.
rounds=5 devices=rxe,siw runs="-f 4 -c 9 -t 0.4" limit=300
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=$2; shift 2 ;;
    --devices) devices=$2; shift 2 ;;
    --quick) rounds=2 runs="-m 4194304 -c 9 -t 0.2;-f 64 -M 262144 -c 9 -t 0.4" limit=200; shift ;;
    --) shift; break ;;
    *) sed -n '2,/^root/{/^root/d;s/^# \{0,1\}//p}' "$0"; exit 2 ;;
    esac
done
more=("$@")
[ "$host" = debian12 ] || die "$host has nothing to compare with"
[ -e "$mca/mca_btl_verbs.so" ] || die "$mca has no mca_btl_verbs.so: run make first"
tests/rig/build-kernel --path >/dev/null || die "the kernel is not there: tests/rig/build-kernel"

host_use debian12
openib=$(dirname "$(tests/rig/openib)")
compile pingpong
mkdir -p "$results/rig"
log=$results/rig/log
log_header env >"$log"
echo "# in a machine of User-Mode Linux 6.1 with one processor; load average outside $(cut -d' ' -f1 /proc/loadavg)" >>"$log"

# What openib has over siw: private queues, where a message never finds no buffer, and nothing that is copied when it is posted.
for device in ${devices//,/ }; do
    fit=()
    case $device in
    rxe) port=eth0 other=eth1 queues=P,128,256,192,128:S,2048,1024,1008,64:S,12288,1024,1008,64:S,65536,1024,1008,64 ;;
    siw) port=eth1 other=eth0 queues=P,65536,64 fit=(--mca btl_openib_max_inline_data 0) ;;
    *) die "no device $device" ;;
    esac
    core=$(taskset -cp $$ | sed 's/.*[ ,-]//')
    # Every node lists the devices of all, and openib takes what it sees.
    # shellcheck disable=SC2016 # expanded there
    taskset -c "$core" tests/rig/vm -n 2 -d "$device" -t $((rounds * limit)) bash -c '
        rounds=$1 device=$2 port=$3 other=$4 queues=$5 ours=$6 openib=$7 stock=$8 program=$9
        IFS=";" read -ra runs <<<"${10}"
        shift 10
        orders=("openib verbs tcp" "verbs tcp openib" "tcp openib verbs" "verbs openib tcp" "openib tcp verbs" "tcp verbs openib")
        for ((round = 1; round <= rounds; round++)); do
            for side in ${orders[(round - 1) % 6]}; do
                as=$side
                case $side in
                verbs) as=candidate path=$ours:$stock words=(--mca btl_verbs_receive_queues "$queues") ;;
                openib)
                    path=$openib:$stock
                    words=(--mca btl_openib_receive_queues "$queues" --mca btl_openib_warn_no_device_params_found 0)
                    ;;
                tcp) path=$stock words=(--mca btl_tcp_if_include "$port") ;;
                esac
                for run in "${runs[@]}"; do
                    echo "run host=debian12 over=$device round=$round side=$as variant=$side load=$(cut -d" " -f1 /proc/loadavg)"
                    node 1 mpirun --host node1:1,node2:1 -n 2 --bind-to none --mca plm_rsh_agent agent \
                        --mca plm_rsh_no_tree_spawn 1 --mca oob_tcp_if_include "$other" --mca mpi_yield_when_idle 1 \
                        --mca mca_base_component_path "$path" --mca pml ob1 --mca btl "$side,self" "${words[@]}" "$@" \
                        bash -c "OMPI_MCA_btl_openib_if_include=$device\${HOSTNAME#node} exec \"\$@\"" rank "$program" $run || exit
                done
            done
        done' rig "$rounds" "$device" "$port" "$other" "$queues" "$mca" "$openib" "$stock" "$results/pingpong" "$runs" \
        ${fit[@]+"${fit[@]}"} ${more[@]+"${more[@]}"} >>"$log" || die "a run over $device fails: $log"
done
python3 bench/report pairs "$log" | tee "$results/rig.txt"
