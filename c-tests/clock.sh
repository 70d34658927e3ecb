# A clock for limits: it counts the seconds of a machine with a core for everyone who wants one. Where
# more want to run than there are cores, a second counts in proportion: a test that has its limit
# from this clock is slow on a busy machine, and does not fail for it. Sourced.

clock_cores=$(nproc)

# clock_start: from now on.
clock_start() { clock=0 clock_at=${EPOCHREALTIME//[.,]/}; }

# clock_read: sets `clock`, milliseconds since clock_start. What is read rarely is known roughly.
clock_read() {
    local now=${EPOCHREALTIME//[.,]/} wanting
    read -r _ _ _ wanting _ </proc/loadavg
    wanting=${wanting%/*}
    [ "$wanting" -gt "$clock_cores" ] || wanting=$clock_cores
    clock=$((clock + (now - clock_at) * clock_cores / wanting / 1000)) clock_at=$now
}
