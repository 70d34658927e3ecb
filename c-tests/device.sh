#!/usr/bin/env bash
# Buffers in device memory, in a real mpirun that takes hawser as its MTL. The device is a stand-in
# (c-tests/device/accelerator.c): a component of the host's accelerator framework whose memory only
# its own copy functions reach. Providers that reach devices need a machine with one, so that too is
# a stand-in (c-tests/device/provider.c): it makes `sockets` or `tcp` reach this device, and ends the
# process when memory, descriptor and registration do not go together.
#
#     c-tests/device.sh debian12|debian13
#
# debian12 is this machine, whose Open MPI 4.1 knows no such framework; debian13 the chroot that
# tests/hosts/debian13.sh keeps. Needs target/mca (`make stage`). Logs lie in
# target/c-tests/HOST/device; that of a failed run is shown. The last line is `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 2

. c-tests/host.sh

host_use "${1-}" || { echo "usage: $0 debian12|debian13" >&2; exit 2; }
[ "$host" = debian13 ] || { echo "$host: Open MPI 4.1 has no accelerator framework"; sum; exit; }
headers=(-Ic-tests/layout/stubs)
for folder in openmpi/include openmpi/include/openmpi pmix2/include; do
    headers+=(-isystem "$libraries/$folder")
done
flags=(-std=gnu11 -O1 -Wall -Wextra -Werror)
work=target/c-tests/debian13/device
mkdir -p "$work" || exit 2

[ -e target/mca/libhawser.so ] || give_up "target/mca is staged"
# libfabric knows devices of cuda, and none of standin.
for name in standin cuda; do
    "${there[@]}" mpicc "${flags[@]}" -Wpedantic -fPIC -shared -fvisibility=hidden "-DNAME=$name" "${headers[@]}" \
        c-tests/device/accelerator.c -o "$work/mca_accelerator_$name.so" || give_up "accelerator.c compiles"
done
"${there[@]}" mpicc "${flags[@]}" -fPIC -shared c-tests/device/provider.c -o "$work/provider.so" || give_up "provider.c compiles"
"${there[@]}" mpicc "${flags[@]}" -Wpedantic c-tests/device/device.c -o "$work/device" || give_up "device.c compiles"
"${there[@]}" mpicc "${flags[@]}" -Wpedantic c-tests/device/reductions.c -o "$work/reductions" || give_up "reductions.c compiles"
"${there[@]}" mpicc "${flags[@]}" -Wpedantic c-tests/mpi/cancel.c -o "$work/cancel" || give_up "cancel.c compiles"

# verdict LINE STATUS
verdict() {
    local status=$2
    check "$1 ($((SECONDS - begin)) s)" "$status"
}

# What carries the messages, unless a row says otherwise.
mtl=(--mca pml cm --mca mtl hawser --mca opal_common_ofi_verbose 1)
carrier=("${mtl[@]}")

# job LINE ACCELERATOR OPTIONS… -- PROGRAM ARGUMENTS…: the status is that of the job, or 1 when the
# program does not say PASS.
job() {
    local line=$1 accelerator=$2
    shift 2
    log=$work/$(tr -c 'a-z0-9_\n' - <<<"$line").log
    begin=$SECONDS
    local options=()
    while [ "$1" != -- ]; do options+=("$1") && shift; done
    shift
    c-tests/patience.sh 180 "${there[@]}" mpirun --oversubscribe -n 2 \
        --mca mca_base_component_path "$root/$work:$root/target/mca:$stock" "${quiet[@]}" --mca accelerator "$accelerator" \
        "${carrier[@]}" "${options[@]}" \
        "$root/$work/$1" "${@:2}" >"$log" 2>&1 </dev/null
    local status=$?
    [ "$status" = 0 ] && ! grep -qx "PASS $1" "$log" && status=1
    return "$status"
}

# device LINE ACCELERATOR PROVIDER EXPECTATION OPTIONS…: all ways to send and receive.
device() {
    local line=$1 accelerator=$2 provider=$3 expectation=$4
    shift 4
    # shellcheck disable=SC2086 # an expectation may be two words
    job "$line" "$accelerator" --mca mtl_hawser_provider_include "$provider" "$@" \
        -- device "$root/$work/mca_accelerator_$accelerator.so" hawser $expectation
    verdict "$line" $?
}

# Each provider and each tag mode once: neither knows where the memory of a message is.
seen=0
for pair in tcp,auto 'tcp;ofi_rxm,ofi_tag_1' tcp,ofi_tag_1 'tcp;ofi_rxm,auto'; do
    provider=${pair%,*} mode=${pair#*,}
    [ $((seen += 1)) -le 2 ] || whole || continue
    device "device memory, $provider, $mode" standin "$provider" staged --mca mtl_hawser_tag_mode "$mode"
done

preload=(-x "LD_PRELOAD=$root/$work/provider.so")
# The thread that drives `sockets` by default sleeps for milliseconds when ranks share processors.
own_calls=(--mca mtl_hawser_control_progress manual --mca mtl_hawser_data_progress manual)
sockets=("${preload[@]}" -x REACHING=sockets "${own_calls[@]}")
for mode in auto ofi_tag_1; do
    [ $mode = auto ] || whole || continue
    device "straight from device to device, $mode" cuda sockets direct "${sockets[@]}" --mca mtl_hawser_tag_mode "$mode"
done
for provider in tcp 'tcp;ofi_rxm'; do
    device "straight from the device, $provider" cuda "$provider" sends "${preload[@]}" -x "REACHING=$provider"
done
device "every third registration is refused" cuda sockets some "${sockets[@]}" -x REFUSING=3
device "every registration is refused" cuda sockets refused "${sockets[@]}" -x REFUSING=1
device "a device that libfabric has no name for" standin sockets refused "${sockets[@]}"
# A real provider with FI_HMEM, and libfabric itself refuses: it finds no such device.
device "shm refuses to register" cuda shm "refused whole" "${preload[@]}" -x NODE_LOCAL=1
device "disable_hmem" cuda sockets staged "${sockets[@]}" -x ASKING=never --mca mtl_hawser_disable_hmem 1

job "without a device nobody asks" null "${sockets[@]}" -x ASKING=never --mca mtl_hawser_provider_include sockets -- cancel
verdict "without a device nobody asks" $?

# Reductions, which the host's operations crash on: over each way to another rank, in trees of three ranks.
for way in "pml cm --mca mtl hawser --mca mtl_hawser_provider_include tcp" "pml ob1 --mca btl sm,self" \
    "pml ob1 --mca btl usnic,self"; do
    read -ra carrier <<<"--mca $way"
    job "reductions, $way" standin -n 3 -- reductions "$root/$work/mca_accelerator_standin.so"
    verdict "reductions, $way" $?
done

carrier=("${mtl[@]}")

# select ACCELERATOR WORDS: what the host says of the component for operations.
select_operations() {
    job "operations, $1" "$1" --mca op_base_verbose 20 --mca mtl_hawser_provider_include tcp -- cancel &&
        grep -q "op component hawser $2" "$log"
    verdict "with $1, the component for operations $2" $?
}
select_operations standin "is available"
select_operations null "is not available"

# choice LINE REACHING LISTS…: the same provider is chosen with devices and without, and is there.
choice() {
    local line=$1 reaching=$2 with without status
    shift 2
    job "$line, staged" cuda "${preload[@]}" -x NODE_LOCAL=1 "$@" --mca mtl_hawser_disable_hmem 1 -- cancel &&
        without=$(sed -n 's/.*mtl:hawser:prov: //p' "$log" | sort -u) &&
        job "$line" cuda "${preload[@]}" -x NODE_LOCAL=1 -x "REACHING=$reaching" "$@" -- cancel &&
        with=$(sed -n 's/.*mtl:hawser:prov: //p' "$log" | sort -u) &&
        [ -n "$with" ] && [ "$with" = "$without" ]
    status=$?
    verdict "$line: ${with-none}" "$status"
}

choice "devices do not change the choice in tcp" 'tcp;ofi_rxm,shm' --mca mtl_hawser_provider_include tcp
choice "devices do not change the choice in shm,tcp" shm --mca mtl_hawser_provider_include shm,tcp
choice "devices do not change the choice outside an exclude list" 'tcp;ofi_rxm,shm' --mca mtl_hawser_provider_exclude sockets,sm2,udp

sum
