#!/usr/bin/env bash
# timeout(1) by the clock of clock.sh.
#
#     c-tests/patience.sh SECONDS COMMAND…
#
# The status is the command's, or 124 if it had to be ended.
set -u
. "$(dirname "$0")/clock.sh"

limit=$1
shift
# Its own process group, signals passed on, and SIGKILL for what does not end: as timeout does it.
timeout --kill-after=10 86400 "$@" <&0 &
job=$!
trap 'kill -TERM "$job" 2>/dev/null' TERM INT HUP
late= ended=
clock_start
while :; do
    sleep 1 >/dev/null 2>&1 &
    tick=$!
    wait -n -p ended "$job" "$tick"
    status=$?
    [ "${ended:-}" != "$job" ] || break
    clock_read
    [ -n "$late" ] || [ "$clock" -lt $((limit * 1000)) ] || { late=yes; kill -TERM "$job" 2>/dev/null; }
done
kill "$tick" 2>/dev/null
[ -z "$late" ] || status=124
exit "$status"
