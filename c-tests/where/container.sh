#!/bin/sh
# Runs a command in a container as an ordinary user makes one: namespaces for users, processes, hosts' names and
# System V IPC, 64 MiB of /dev/shm, no capability outside, and a filter of system calls (sandbox.c). The network is
# shared.
#
#     container.sh usual|strict SANDBOX COMMAND…
#
# SANDBOX is where sandbox.c is compiled. /tmp is empty, and the user is called root in there. With WHERE_SHARED set,
# /tmp is that outside, and the user keeps the number that it has there: a launcher outside wants both.
set -eu
profile=$1 sandbox=$2
shift 2
set -- -- "$sandbox" "$profile" "$@"
[ -n "${WHERE_SHARED:-}" ] || set -- --uid 0 --gid 0 --tmpfs /tmp "$@"
exec bwrap --unshare-user --unshare-pid --unshare-ipc --unshare-uts --hostname container \
    --bind / / --proc /proc --dev /dev --size 67108864 --tmpfs /dev/shm --die-with-parent --chdir "$PWD" "$@"
