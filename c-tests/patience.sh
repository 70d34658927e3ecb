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
(
    clock_start
    while [ "$clock" -lt $((limit * 1000)) ]; do
        sleep 1
        clock_read
    done
    trap '' TERM
    kill -TERM "$job"
) >/dev/null 2>&1 &
watch=$!
# A signal that was passed on ends the waiting, and not always the command.
while :; do
    wait "$job"
    status=$?
    kill -0 "$job" 2>/dev/null || break
done
kill "$watch" 2>/dev/null
wait "$watch" 2>/dev/null && status=124
exit "$status"
