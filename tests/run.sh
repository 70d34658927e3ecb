#!/usr/bin/env bash
# Everything that `make test` runs, on both hosts: steps, several at a time.
#
#     tests/run.sh [STEP …]            all steps, or only those named and what they need
#     tests/run.sh --whole [STEP …]    the whole matrix, for before a release: `make test-all`
#     tests/run.sh --list [--whole]    their names
#
#     HAWSER_LANES=N                   how many steps at a time; half as many again as there are cores,
#                                      because most of what a step does is to wait
#
# A step prints its own lines and ends with `N passed, N failed`; a step that prints none counts by
# its exit status. It has a log in target/test-logs, printed when it ends, and a folder for temporary
# files of its own. A failed step stops none but those that need it. At the end come the slowest
# steps, the lines that failed, and the sum. docs/testing.md says what is in which run.
set -u
cd "$(dirname "$0")/.."
. tests/schedule.sh

list=
while [ $# -gt 0 ]; do
    case $1 in
    --whole) export HAWSER_WHOLE=1 ;;
    --list) list=yes ;;
    -*) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0"; exit 2 ;;
    *) break ;;
    esac
    shift
done
whole=${HAWSER_WHOLE:-}

PATH=$(tests/setup.sh path)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 CARGO_TARGET_DIR=$PWD/target
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

# --- the steps: NAME AFTER COMMAND…; the long ones first

datagrams=5000000 forged=100000 inputs=200000
if [ -n "$whole" ]; then
    datagrams=100000000 forged=1000000 inputs=1000000
    # As jobs of users run, one step at a time.
    export HAWSER_POLL=1 HAWSER_LANES=${HAWSER_LANES:-1}
fi

case $hosts in *debian13*) step second-host - tests/hosts/debian13.sh make ;; esac
for host in $hosts; do
    there=-
    [ "$host" = debian12 ] || there=second-host
    step "programs-$host" $there c-tests/programs.sh "$host"
done
step rust - env "HAWSER_SIM_DATAGRAMS=${HAWSER_SIM_DATAGRAMS:-$datagrams}" tests/rust.sh
for host in $hosts; do
    step "mpi-$host" "programs-$host" c-tests/run-mpi.sh "$host"
    step "mpi4py-$host" "programs-$host" c-tests/mpi4py.sh "$host"
    step "selection-$host" "programs-$host" c-tests/selection.sh "$host"
    step "faults-$host" "programs-$host" c-tests/faults.sh "$host"
    [ -z "$network" ] || step "net-faults-$host" "programs-$host" env "HAWSER_FORGED=${HAWSER_FORGED:-$forged}" c-tests/net-faults.sh "$host"
    [ -z "$network" ] || step "net-$host" "programs-$host" c-tests/net.sh "$host"
    step "btl-$host" "programs-$host" c-tests/btl.sh "$host"
    step "btl-reports-$host" "programs-$host" c-tests/btl-reports.sh "$host"
    [ -z "$network" ] || step "net-reports-$host" "programs-$host" c-tests/net-reports.sh "$host"
    step "provider-$host" "programs-$host" c-tests/provider.sh "$host"
    step "layout-$host" "programs-$host" c-tests/layout.sh "$host"
    step "guard-$host" "programs-$host" c-tests/guard.sh "$host"
    step "loop-$host" "programs-$host" c-tests/loop.sh "$host"
    ways="plain asan valgrind"
    [ "$host" = debian12 ] || [ -n "$whole" ] || ways="plain asan"
    step "hostile-$host" "programs-$host" env "HAWSER_HOSTILE_WAYS=${HAWSER_HOSTILE_WAYS:-$ways}" c-tests/hostile.sh "$host"
done
case $hosts in *debian13*) step device-debian13 programs-debian13 c-tests/device.sh debian13 ;; esac
step fuzz - tests/fuzz.sh $inputs
step tsan - tests/tsan.sh
step suite - tests/suite.sh
step exports - c-tests/export.sh
step install - c-tests/install.sh
if [ -n "$whole" ]; then
    # On plain tcp of libfabric 2.1 spawned processes are now and then lost in the provider itself.
    case $hosts in *debian13*) step mpi4py-spawn mpi4py-debian13 env PROVIDER="tcp;ofi_rxm" c-tests/mpi4py.sh debian13 -- -i test_spawn ;; esac
    [ "$(id -u)" = 0 ] && step empty-machine - tests/hosts/empty.sh demo
fi

[ -z "$list" ] || { printf '%s\n' "${names[@]}"; exit; }
run_steps "$@"
[ -z "$not_run" ] || echo "not run:" $not_run
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
