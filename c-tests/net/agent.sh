#!/bin/sh
# What mpirun takes for ssh between the hosts of a network bed (bed.sh): agent.sh NODE COMMAND…
# As with ssh, nothing of the environment goes along.
set -eu
node=$1
shift
case $node in
node[0-9]*) ;;
*) echo "agent: no host $node" >&2; exit 255 ;;
esac
# shellcheck disable=SC2086 # a list: the process that holds each host, in order
pid=$(n=${node#node}; set -- $BED_PIDS; shift $((n - 1)); echo "$1")
exec nsenter --target "$pid" --net --uts --mount --root --wd \
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 sh -c "$*"
