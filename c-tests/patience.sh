#!/usr/bin/env bash
# timeout(1) by the clock of clock.sh.
#
#     c-tests/patience.sh [-p PROGRAM] SECONDS COMMAND…
#
# The status is the command's, or 124 if it had to be ended. With -p it is 123 if by then no process of PROGRAM, a file, was
# there any more: who has not ended is what has started it.
set -u
. "$(dirname "$0")/clock.sh"

program=
if [ "$1" = -p ]; then
    program=$2
    shift 2
fi
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
    late=124
    # A process that ends meanwhile, or is another's, has no file that can be followed.
    [ -z "$program" ] || [ -n "$(find -L /proc/[0-9]*/exe -maxdepth 0 -samefile "$program" -print -quit 2>/dev/null)" ] || late=123
    kill -TERM "$job" && exit $late
) >/dev/null 2>&1 &
watch=$!
# A signal that was passed on ends the waiting, and not always the command.
while :; do
    wait "$job"
    status=$?
    kill -0 "$job" 2>/dev/null || break
done
kill "$watch" 2>/dev/null
wait "$watch" 2>/dev/null
late=$?
case $late in 123 | 124) status=$late ;; esac
exit "$status"
