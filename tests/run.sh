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

# --- the steps: NAME AFTER COMMAND…; what takes longest first, so that no lane is left with a long one at
# the end.

datagrams=5000000 forged=100000 inputs=200000
if [ -n "$whole" ]; then
    datagrams=100000000 forged=1000000 inputs=1000000
    # As jobs of users run, one step at a time.
    export HAWSER_POLL=1 HAWSER_LANES=${HAWSER_LANES:-1}
fi

# The library is built beside what does not need it: one of the compiler's threads works on it for minutes.
step library - make --no-print-directory all
case $hosts in *debian13*) step second-host - tests/hosts/debian13.sh make ;; esac
for host in $hosts; do
    there=library
    [ "$host" = debian12 ] || there=library,second-host
    step "programs-$host" $there c-tests/programs.sh "$host"
done
step rust - env "HAWSER_SIM_DATAGRAMS=${HAWSER_SIM_DATAGRAMS:-$datagrams}" tests/rust.sh
# on HOST STEP COMMAND…: a step that runs the host's programs.
on() { step "$2-$1" "programs-$1" "${@:3}"; }
# each STEP COMMAND…: on each host, named as the last argument.
each() { for host in $hosts; do on "$host" "$1" "${@:2}" "$host"; done; }
# net_each STEP COMMAND…: those that make networks.
net_each() { [ -z "$network" ] || each "$@"; }

each mpi c-tests/run-mpi.sh
for host in $hosts; do
    ways="plain asan valgrind"
    [ "$host" = debian12 ] || [ -n "$whole" ] || ways="plain asan"
    on "$host" hostile env "HAWSER_HOSTILE_WAYS=${HAWSER_HOSTILE_WAYS:-$ways}" c-tests/hostile.sh "$host"
done
net_each net-faults env "HAWSER_FORGED=${HAWSER_FORGED:-$forged}" c-tests/net-faults.sh
net_each net c-tests/net.sh
case $hosts in *debian13*) on debian13 device c-tests/device.sh debian13 ;; esac
each accelerator c-tests/accelerator.sh
each guard c-tests/guard.sh
step fuzz - tests/fuzz.sh $inputs
each mpi4py c-tests/mpi4py.sh
each btl c-tests/btl.sh
each smcuda c-tests/smcuda.sh
each smcuda-device c-tests/smcuda-device.sh
each verbs c-tests/verbs.sh
each selection c-tests/selection.sh
each faults c-tests/faults.sh
each btl-reports c-tests/btl-reports.sh
net_each net-reports c-tests/net-reports.sh
net_each net-perf c-tests/net-perf.sh
each provider c-tests/provider.sh
for host in $hosts; do
    ways="plain asan"
    [ "$host" = debian12 ] || ways=plain
    [ -z "$whole" ] || ways="plain asan valgrind"
    [ -z "$whole" ] || [ "$host" = debian12 ] || ways="plain asan"
    on "$host" gni env "HAWSER_GNI_WAYS=${HAWSER_GNI_WAYS:-$ways}" c-tests/gni.sh "$host"
done
each gni-mpi c-tests/gni-mpi.sh
net_each gni-net c-tests/gni-net.sh
step mpich library c-tests/mpich.sh
each layout c-tests/layout.sh
each loop c-tests/loop.sh
step capi-debian12 library c-tests/capi.sh debian12
case $hosts in *debian13*) step capi-debian13 library,second-host c-tests/capi.sh debian13 ;; esac
step perf-debian12 library c-tests/perf.sh debian12
case $hosts in *debian13*) step perf-debian13 library,second-host c-tests/perf.sh debian13 ;; esac
step cuda-debian12 - c-tests/cuda.sh debian12
case $hosts in *debian13*) step cuda-debian13 second-host c-tests/cuda.sh debian13 ;; esac
step verbs-standin-debian12 - c-tests/verbs-standin.sh debian12
case $hosts in *debian13*) step verbs-standin-debian13 second-host c-tests/verbs-standin.sh debian13 ;; esac
step tsan - tests/tsan.sh
step suite - tests/suite.sh
step report - python3 tests/report/pages.py
step exports library c-tests/export.sh
step install library c-tests/install.sh
# Real devices, in a machine whose kernel is built once, by the whole matrix; on the second host with the root of a cluster's machine.
if [ -n "$whole" ]; then
    rig='tests/rig/build-kernel && exec tests/rig/"$0" "$@"'
    on debian12 rig bash -c "$rig" mpi debian12
    for name in probe traffic; do step "rig-$name" library bash -c "$rig" $name; done
elif tests/rig/build-kernel --path >/dev/null 2>&1; then
    sample="2 ranks, 1 % lost: p2p small"
    on debian12 rig tests/rig/mpi debian12 "$sample"
    case $hosts in
    *debian13*)
        if tests/hosts/cluster.sh debian13 path >/dev/null; then
            on debian13 rig tests/rig/mpi debian13 "$sample"
        else
            echo "without verbs over real devices on Debian 13, whose machine is not there: tests/hosts/cluster.sh debian13 make"
        fi
        ;;
    esac
else
    echo "without verbs over real devices, whose kernel is not there: tests/rig/build-kernel"
fi
if [ -n "$whole" ]; then
    step versions library c-tests/versions.sh
    # Of the first host's release mirrors have no source any more.
    case $hosts in *debian13*) step fabtests library,second-host c-tests/gni/fabtests.sh debian13 ;; esac
    [ "$(id -u)" = 0 ] && step dissect library c-tests/dissect.sh
    # By the last host: all of them are there then.
    step browser "programs-${hosts##* }" tests/report/browser.sh
    # On plain tcp of libfabric 2.1 spawned processes are now and then lost in the provider itself.
    case $hosts in *debian13*) step mpi4py-spawn mpi4py-debian13 env PROVIDER="tcp;ofi_rxm" c-tests/mpi4py.sh debian13 -- -i test_spawn ;; esac
    [ "$(id -u)" = 0 ] && {
        for host in $hosts; do step "empty-machine-$host" - tests/hosts/empty.sh demo "$host"; done
        step package library tests/hosts/empty.sh package
        [ -z "$network" ] || for host in $hosts; do
            step "cluster-$host" "programs-$host" tests/hosts/cluster.sh "$host" make
            step "where-$host" "cluster-$host" c-tests/where.sh "$host"
            [ "$host" = debian12 ] || step "rig-$host" "cluster-$host" bash -c "$rig" mpi "$host"
        done
    }
fi

[ -z "$list" ] || { printf '%s\n' "${names[@]}"; exit; }
run_steps "$@"
[ -z "$not_run" ] || echo "not run:" $not_run
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
