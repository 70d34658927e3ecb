# What the scripts that run jobs in a network bed share; sourced by them, after bed.sh.

# job_system debian12|debian13
job_system() {
    local libraries=/usr/lib/x86_64-linux-gnu/openmpi/lib
    system=$1 quiet=()
    case $system in
    debian12)
        there=()
        stock=$libraries/openmpi3
        ;;
    debian13)
        there=(tests/hosts/debian13.sh run --)
        stock=$libraries/openmpi40
        # PMIx reads the component path too, and would complain that ours are not its own.
        quiet=(--pmixmca mca_base_component_show_load_errors none)
        ;;
    *) return 1 ;;
    esac
    btl=${HAWSER_BTL:-usnic}
    work=target/c-tests/$system/net
    mkdir -p "$work/logs" || return 1
    # Variables that Open MPI would take for options of ours.
    for name in ${!OMPI_MCA_*} ${!PMIX_MCA_*} ${!PRTE_MCA_*}; do unset "$name"; done
    read -ra more <<<"${HAWSER_BTL_OPTIONS-}"
}

# job_compile PROGRAM…
job_compile() {
    local program
    for program in "$@"; do
        "${there[@]}" mpicc -std=gnu11 -O1 -Wall -Wextra -Wpedantic -Werror "c-tests/mpi/$program.c" -o "$work/$program" -lpthread >"$work/logs/cc" 2>&1 ||
            { cat "$work/logs/cc"; echo "not ok $program compiles"; return 1; }
    done
    [ "$btl" = tcp ] || [ -e target/mca/libhawser.so ] || { echo "target/mca is missing: make stage"; return 1; }
}

# job_tune: TCP waits for 200 ms after a loss, which is for the world and not for a cable.
job_tune() {
    local host
    [ "$btl" = tcp ] || return 0
    for ((host = 1; host <= bed_hosts; host++)); do
        nsenter --target "${bed_pids[$host]}" --net sysctl -qw net.ipv4.tcp_rto_min_us=5000 2>/dev/null || return 0
    done
}

# job_words HOSTS RANKS WORD…: how such a job is started, in `start`. The last words are the program.
job_words() {
    local hosts=$1 ranks=$2 host names=
    shift 2
    for ((host = 1; host <= hosts; host++)); do names=$names,node$host; done
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
    CHECK_WATCHDOG=${CHECK_WATCHDOG:-400} bed_on 1 timeout --kill-after=10 420 "${start[@]}" >"$log.raw" 2>&1 </dev/null
    status=$?
    # Open MPI 5.0 ends its help texts with a zero byte.
    tr -d '\0' <"$log.raw" >"$log"
    rm -f "$log.raw"
}
