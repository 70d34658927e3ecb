#!/usr/bin/env bash
# The verbs BTL beside Open MPI 4.1's own openib over real devices, rxe (RoCE) and siw (iWARP), between two nodes of the rig
# (tests/rig): in each round both run once, in turn, all in one machine for each device; then the table of bench/report. Losses are
# reported as plainly as wins. That machine has one processor, so that only ratios mean something. It is kept on one core outside,
# too: over two, each of its system calls takes several times as long whenever it and its process happen to be on different ones.
#
#     bench/rig.sh [--rounds N] [--devices D[,D]] [--quick] [-- WORD…]
#
# --rounds    5
# --devices   rxe,siw
# --quick     few sizes, 2 rounds
# WORD…       more words for mpirun, for both
#
# On Debian 12 only, as bench/verbs.sh. Needs the rig's kernel (tests/rig/build-kernel), and builds openib (tests/rig/openib).
root=$(cd "$(dirname "$0")/.." && pwd -P)
cd "$root" || exit 2
. bench/host.sh
. bench/header.sh

rounds=5 devices=rxe,siw sizes=(-f 4 -c 5 -t 0.05)
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=$2; shift 2 ;;
    --devices) devices=$2; shift 2 ;;
    --quick) rounds=2 sizes=(-f 64 -c 9 -t 0.5); shift ;;
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
    rxe) other=eth1 queues=P,128,256,192,128:S,2048,1024,1008,64:S,12288,1024,1008,64:S,65536,1024,1008,64 ;;
    siw) other=eth0 queues=P,65536,64 fit=(--mca btl_openib_max_inline_data 0) ;;
    *) die "no device $device" ;;
    esac
    core=$(taskset -cp $$ | sed 's/.*[ ,-]//')
    # Every node lists the devices of all, and openib takes what it sees.
    # shellcheck disable=SC2016 # expanded there
    taskset -c "$core" tests/rig/vm -n 2 -d "$device" -t 1100 bash -c '
        rounds=$1 device=$2 other=$3 queues=$4 ours=$5 openib=$6 stock=$7 program=$8
        shift 8
        for ((round = 1; round <= rounds; round++)); do
            sides=(verbs openib)
            [ $((round % 2)) = 0 ] || sides=(openib verbs)
            for side in "${sides[@]}"; do
                as=openib path=$openib
                [ "$side" = openib ] || as=candidate path=$ours
                echo "run host=debian12 over=$device round=$round side=$as variant=$side load=$(cut -d" " -f1 /proc/loadavg)"
                node 1 mpirun --host node1:1,node2:1 -n 2 --bind-to none --mca plm_rsh_agent agent --mca plm_rsh_no_tree_spawn 1 \
                    --mca oob_tcp_if_include "$other" --mca mpi_yield_when_idle 1 --mca mca_base_component_path "$path:$stock" \
                    --mca pml ob1 --mca btl "$side,self" --mca "btl_${side}_receive_queues" "$queues" \
                    --mca btl_openib_warn_no_device_params_found 0 "${@:2:$1}" \
                    bash -c "OMPI_MCA_btl_openib_if_include=$device\${HOSTNAME#node} exec \"\$@\"" rank "$program" "${@:$1 + 2}" || exit
            done
        done' rig "$rounds" "$device" "$other" "$queues" "$mca" "$openib" "$stock" "$results/pingpong" \
        $((${#fit[@]} + ${#more[@]})) ${fit[@]+"${fit[@]}"} ${more[@]+"${more[@]}"} "${sizes[@]}" >>"$log" || die "a run over $device fails: $log"
done
python3 bench/report pairs "$log" | tee "$results/rig.txt"
