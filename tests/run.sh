#!/usr/bin/env bash
# Everything that `make test` runs, on both hosts, one step after the other.
#
#     tests/run.sh [STEP …]       all steps, or only those named
#
# A step prints its own lines and ends with `N passed, N failed`; a step that prints none counts by
# its exit status. A failed step does not stop the others. The last line is the sum.
set -u
cd "$(dirname "$0")/.."

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
hosts=debian12
not_run=
if why=$(tests/hosts/debian13.sh able); then
    hosts="debian12 debian13"
elif [ -n "${CI:-}" ]; then
    echo "$why"
    hosts="debian12 debian13"
else
    echo "$why"
    not_run="debian13"
fi

network=yes
if ! why=$(. c-tests/net/bed.sh && bed_able); then
    echo "$why"
    [ -n "${CI:-}" ] || { network= not_run="$not_run networks"; }
fi

passed=0 failed=0 wanted=" $* " broken=

# step NAME COMMAND…: runs one step and adds up what it says.
step() {
    local name=$1 log=target/test-logs/$1.log begin=$SECONDS status sum
    shift
    case $wanted in "  " | *" $name "*) ;; *) return ;; esac
    printf '\n=== %s\n' "$name"
    mkdir -p target/test-logs
    "$@" 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    sum=$(sed -nE 's/.*\b([0-9]+) passed[,;] ([0-9]+) failed.*/\1 \2/p' "$log" | if [ "$name" = rust ]; then cat; else tail -n 1; fi)
    local p=0 f=0 a b
    while read -r a b; do [ -n "$a" ] && p=$((p + a)) f=$((f + b)); done <<<"$sum"
    if [ $((p + f)) = 0 ] && [ "$status" = 0 ]; then p=1; fi
    if [ "$f" = 0 ] && [ "$status" != 0 ]; then f=1; fi
    passed=$((passed + p)) failed=$((failed + f))
    [ "$f" = 0 ] || broken="$broken $name"
    printf '=== %s: %d passed, %d failed, %d s\n' "$name" "$p" "$f" $((SECONDS - begin))
}

# A plain `cargo test` simulates a tenth of that.
step rust env HAWSER_SIM_DATAGRAMS=100000000 cargo test --release
step fuzz tests/fuzz.sh
step exports c-tests/export.sh
step install c-tests/install.sh
case $hosts in *debian13*) step second-host tests/hosts/debian13.sh make ;; esac
for host in $hosts; do
    step "layout-$host" c-tests/layout.sh "$host"
    step "selection-$host" c-tests/selection.sh "$host"
    step "guard-$host" c-tests/guard.sh "$host"
    step "faults-$host" c-tests/faults.sh "$host"
    step "mpi-$host" c-tests/run-mpi.sh "$host"
    step "btl-$host" c-tests/btl.sh "$host"
    step "btl-reports-$host" c-tests/btl-reports.sh "$host"
    [ -z "$network" ] || step "net-$host" c-tests/net.sh "$host"
    [ -z "$network" ] || step "net-reports-$host" c-tests/net-reports.sh "$host"
    [ -z "$network" ] || step "net-faults-$host" env HAWSER_FORGED=300000 c-tests/net-faults.sh "$host"
    step "mpi4py-$host" c-tests/mpi4py.sh "$host"
done
case $hosts in *debian13*) step device-debian13 c-tests/device.sh debian13 ;; esac
# On plain tcp of libfabric 2.1 spawned processes are now and then lost in the provider itself.
case $hosts in *debian13*) step mpi4py-spawn env PROVIDER="tcp;ofi_rxm" c-tests/mpi4py.sh debian13 -- -i test_spawn ;; esac

echo
for name in $broken; do
    echo "failed in $name:"
    grep -E '^not ok|^test .*FAILED$|^error' "target/test-logs/$name.log"
done
[ -z "$not_run" ] || echo "not run:" $not_run
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
