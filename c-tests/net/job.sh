# What the scripts that run jobs in a network bed share; sourced by them, after host.sh and bed.sh.

# job_begin SCRIPT-ARGUMENT…: the script goes on as the bed, if there can be one, for that host, with
# these words. Its name is in `system`: `host` is free for the hosts of the bed.
job_begin() {
    host_use "${1-}" || { echo "usage: $0 debian12|debian13 [WORD …]" >&2; exit 2; }
    bed_able || give_up "there can be a network here"
    bed_enter "$@"
    words=("${@:2}") system=$host
    btl=${HAWSER_BTL:-usnic}
    work=target/c-tests/$host/net
    mkdir -p "$work/logs" || exit 2
    read -ra more <<<"${HAWSER_BTL_OPTIONS-}"
    [ "$btl" = tcp ] || [ -e target/mca/libhawser.so ] || give_up "target/mca is there: make stage"
}

# job_programs PROGRAM…: of c-tests/mpi
job_programs() { mpi_compile "$@" || { sum; exit 1; }; }

# job_network HOSTS [RAILS]
job_network() {
    bed_make "$system" "$@" || give_up "the network is there"
    job_tune
}

# job_tune: TCP waits for 200 ms after a loss, which is for the world and not for a cable.
job_tune() {
    local node
    [ "$btl" = tcp ] || return 0
    for ((node = 1; node <= bed_hosts; node++)); do
        nsenter --target "${bed_pids[$node]}" --net sysctl -qw net.ipv4.tcp_rto_min_us=5000 2>/dev/null || return 0
    done
}

# job_words HOSTS RANKS WORD…: how such a job is started, in `start`. The last words are the program.
job_words() {
    local hosts=$1 ranks=$2 node names=
    shift 2
    for ((node = 1; node <= hosts; node++)); do names=$names,node$node; done
    start=(mpirun --host "${names#,}" -n "$ranks" -x CHECK_WATCHDOG --mca pml ob1 --mca btl "$btl,self")
    # TCP of 5.0.7 finds no way to a peer of the same host over a device with IPv4 and IPv6.
    [ "$btl $system" != "tcp debian13" ] || start+=(--mca btl_tcp_disable_family 6)
    [ "$btl" = tcp ] || start+=(--mca mca_base_component_path "$bed_root/target/mca:$stock" "${quiet[@]}")
    case " $* ${more[*]-} " in *_if_include*) ;; *) start+=(--mca "btl_${btl}_if_include" e0) ;; esac
    start+=(${more[@]+"${more[@]}"} "$@")
}

# job HOSTS RANKS WORD…: runs it; fills `log` and `status`.
job() {
    job_words "$@"
    CHECK_WATCHDOG=${CHECK_WATCHDOG:-400} bed_on 1 "$bed_root/c-tests/patience.sh" 420 "${start[@]}" >"$log.raw" 2>&1 </dev/null
    status=$?
    # Open MPI 5.0 ends its help texts with a zero byte.
    tr -d '\0' <"$log.raw" >"$log"
    rm -f "$log.raw"
}
