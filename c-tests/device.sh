#!/usr/bin/env bash
# Buffers in device memory, in a real mpirun that takes hawser as its MTL. The device is a stand-in
# (c-tests/device/accelerator.c): a component of the host's accelerator framework whose memory only
# its own copy functions reach.
#
#     c-tests/device.sh debian12|debian13
#
# debian12 is this machine, whose Open MPI 4.1 knows no such framework; debian13 the chroot that
# tests/hosts/debian13.sh keeps. Needs target/mca (`make stage`). Logs lie in
# target/c-tests/HOST/device; that of a failed run is shown. The last line is `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 2

case ${1-} in
debian12)
    echo "debian12: Open MPI 4.1 has no accelerator framework"
    echo "0 passed, 0 failed"
    exit 0
    ;;
debian13) ;;
*)
    echo "usage: $0 debian12|debian13" >&2
    exit 2
    ;;
esac
there=(tests/hosts/debian13.sh run --)
libraries=/usr/lib/x86_64-linux-gnu
headers=(-Ic-tests/layout/stubs)
for folder in openmpi/include openmpi/include/openmpi pmix2/include; do
    headers+=(-isystem "$libraries/$folder")
done
flags=(-std=gnu11 -O1 -Wall -Wextra -Wpedantic -Werror)
work=target/c-tests/debian13/device
component=$work/mca_accelerator_standin.so
mkdir -p "$work" || exit 2

# Variables that Open MPI would take for options of ours.
for name in ${!OMPI_MCA_*} ${!PMIX_MCA_*} ${!PRTE_MCA_*}; do unset "$name"; done

give_up() {
    echo "not ok $1"
    echo "0 passed, 1 failed"
    exit 1
}

[ -e target/mca/libhawser.so ] || give_up "target/mca is staged"
"${there[@]}" mpicc "${flags[@]}" -fPIC -shared -fvisibility=hidden "${headers[@]}" \
    c-tests/device/accelerator.c -o "$component" || give_up "accelerator.c compiles"
"${there[@]}" mpicc "${flags[@]}" c-tests/device/device.c -o "$work/device" || give_up "device.c compiles"

passed=0 failed=0
for provider in tcp 'tcp;ofi_rxm'; do
    for mode in auto ofi_tag_1; do
        line="device memory, $provider, $mode"
        log=$work/$(tr -c 'a-z0-9_\n' - <<<"$line").log
        begin=$SECONDS
        # PMIx reads the component path too, and would complain that ours are not its own.
        timeout --kill-after=10 180 "${there[@]}" mpirun --oversubscribe -n 2 \
            --mca mca_base_component_path "/hawser/$work:/hawser/target/mca:$libraries/openmpi/lib/openmpi40" \
            --pmixmca mca_base_component_show_load_errors none --mca accelerator standin \
            --mca pml cm --mca mtl hawser --mca mtl_hawser_provider_include "$provider" \
            --mca mtl_hawser_tag_mode "$mode" "/hawser/$work/device" "/hawser/$component" >"$log" 2>&1 </dev/null
        status=$?
        if [ "$status" = 0 ] && grep -qx "PASS device" "$log"; then
            passed=$((passed + 1))
            echo "ok $line ($((SECONDS - begin)) s)"
        else
            failed=$((failed + 1))
            echo "not ok $line (status $status, $((SECONDS - begin)) s)"
            head -n 30 "$log" | sed 's/^/    | /'
        fi
    done
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
