#!/usr/bin/env bash
# The software stand-in for libibverbs.so.1 and librdmacm.so.1 (c-tests/verbs), over which RDMA is tested where there
# is no device: each rule that it keeps as real devices do, as RoCE and as iWARP, between processes; what the probe says,
# line by line, against what it said of rxe and siw of Linux 6.1; and rdma-core's own examples.
#
#     c-tests/verbs-standin.sh debian12|debian13 [WORD …]
#
# debian12 is this machine, debian13 the chroot that tests/hosts/debian13.sh keeps: it is compiled on each with the
# host's headers. Each case runs as it is, and on debian12 under AddressSanitizer; on debian13 those that use most of it run
# under valgrind (in `make test-all`, all). Afterwards nothing may be left in its ledger.
# The last line is `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 2

. c-tests/host.sh
. c-tests/verbs/build.sh
. c-tests/verbs/probe.sh

host_use "${1-}" || { echo "usage: $0 debian12|debian13 [WORD …]" >&2; exit 2; }
shift
words=("$@")
work=target/c-tests/$host/verbs-standin
log=$work/log
rm -rf "$work"
mkdir -p "$work/plain" "$work/asan" "$work/ledgers" "$work/control" || exit 2
unset "${!HAWSER_VERBS_@}" OMPI_COMM_WORLD_RANK

# ways_of CASE: fills `ways`.
ways_of() {
    ways=(plain asan)
    [ "$host" = debian13 ] || return 0
    ways=(plain)
    case $1 in
    connect-a-whole-life | transfer-memory-of-the-peer | transfer-completion-events | limits-states | failure-a-late-receive) ways+=(valgrind) ;;
    # It stops itself, and valgrind with it.
    failure-a-stopped-peer) ;;
    *) ! whole || ways+=(valgrind) ;;
    esac
}

# compile FOLDER FLAG…: the libraries and the programs.
compile() {
    local folder=$1 source
    shift
    verbs_libraries "$folder" "$@" || give_up "the stand-in compiles ($folder)"
    for source in c-tests/verbs/tests/*.c; do
        "${there[@]}" gcc "${verbs_flags[@]}" -O1 "$@" "$source" -o "$folder/$(basename "$source" .c)" \
            "$folder/librdmacm.so.1" "$folder/libibverbs.so.1" >"$log" 2>&1 || give_up "$(basename "$source") compiles ($folder)"
    done
}

compile "$work/plain"
[ "$host" != debian12 ] || compile "$work/asan" -O1 -fsanitize=address,undefined -fno-omit-frame-pointer

# case_of PROGRAM CASE LEDGERS VARIABLE=VALUE…: as both devices and in all ways; so many processes say that nothing is left,
# of RoCE and of iWARP where they differ.
case_of() {
    local program=$1 name=$2 ledgers=$3 way device count folder status runner line prefix
    shift 3
    ways_of "$program-$name"
    for device in roce iwarp; do
        count=${ledgers%/*}
        [ "$device" = roce ] || count=${ledgers#*/}
        for way in "${ways[@]}"; do
            line="$program: ${name//-/ }, $device, $way"
            wanted "$line" || continue
            folder=$way runner=()
            if [ "$way" = valgrind ]; then
                folder=plain
                # One thread runs at a time there: they take turns.
                runner=(valgrind --quiet --read-inline-info=no --error-exitcode=99 --leak-check=no --trace-children=no --fair-sched=yes)
            fi
            log=$work/$program-$name-$device-$way.log
            prefix=$work/ledgers/$program-$name-$device-$way
            rm -f "$work"/control/*
            c-tests/patience.sh 60 "${there[@]}" env LD_LIBRARY_PATH="$root/$work/$folder" ASAN_OPTIONS=detect_leaks=1:handle_abort=0 \
                HAWSER_VERBS_PERSONALITY=$device HAWSER_VERBS_LEDGER="$root/$prefix" \
                "$@" "${runner[@]}" "$root/$work/$folder/$program" "$name" >"$log" 2>&1 </dev/null
            status=$?
            if [ "$status" = 0 ]; then verbs_ledger "$prefix" "$count" >>"$log" 2>&1 || status=ledger; fi
            check "$line" "$status"
        done
    done
}

for program in connect transfer atomics limits failure; do
    for name in $("${there[@]}" env LD_LIBRARY_PATH="$root/$work/plain" "$root/$work/plain/$program"); do
        case $program-$name in
        limits-use-after-the-end) case_of "$program" "$name" 0 ;;
        limits-a-* | limits-places-in-* | limits-completions-*) case_of "$program" "$name" 2 ;;
        limits-*) case_of "$program" "$name" 1 ;;
        connect-devices-that-*) case_of "$program" "$name" 0 ;;
        connect-nobody-listens | connect-not-now | connect-no-way | connect-events-* | connect-destroy-*) case_of "$program" "$name" 1 ;;
        atomics-to-itself) case_of "$program" "$name" 1 ;;
        connect-several-devices) case_of "$program" "$name" 2 \
            HAWSER_VERBS_DEVICES=first=127.0.0.1/roce,second=127.0.0.2/iwarp,elsewhere=192.0.2.1 ;;
        connect-several-ports) case_of "$program" "$name" 2 HAWSER_VERBS_DEVICES=both=127.0.0.1+127.0.0.2 ;;
        connect-a-killed-peer | failure-stale-memory) case_of "$program" "$name" 1 ;;
        transfer-data-move-late) case_of "$program" "$name" 2 HAWSER_VERBS_DELAY=200000 ;;
        failure-a-link-of-two-*) case_of "$program" "$name" 2 HAWSER_VERBS_DEVICES=both=127.0.0.1+127.0.0.2 \
            HAWSER_VERBS_CONTROL="$root/$work/control" ;;
        failure-a-link-is-*) case_of "$program" "$name" 1 HAWSER_VERBS_CONTROL="$root/$work/control" ;;
        failure-a-link-* | failure-a-device-*) case_of "$program" "$name" 2 HAWSER_VERBS_CONTROL="$root/$work/control" ;;
        failure-faults) case_of "$program" "$name" 1 \
            HAWSER_VERBS_FAULTS=rdma_create_id:2:12,ADDR_RESOLVED:1:110,ADDR_RESOLVED:2:twice,ROUTE_RESOLVED:1:lost,ibv_alloc_pd:1+:5 ;;
        failure-a-completion-fails) case_of "$program" "$name" 2 HAWSER_VERBS_FAULTS=send-completion:2:12 ;;
        failure-a-connection-fails) case_of "$program" "$name" 2 HAWSER_VERBS_FAULTS=ESTABLISHED:1:110@1 ;;
        # Of iWARP's two, one is killed.
        failure-a-stopped-peer) case_of "$program" "$name" 2/1 ;;
        *) case_of "$program" "$name" 2 ;;
        esac
    done
done

# --- what is left is named

line="the ledger names what is left"
if wanted "$line"; then
    log=$work/left.log
    prefix=$work/ledgers/left
    "${there[@]}" env LD_LIBRARY_PATH="$root/$work/plain" HAWSER_VERBS_LEDGER="$root/$prefix" "$root/$work/plain/leaves" >"$log" 2>&1 </dev/null
    status=$?
    said=$(awk '$1 == "thing" && $NF != 0 { print $2, $NF }' "$prefix".*)
    echo "$said" >>"$log"
    for thing in device-lists contexts protection-domains memory-regions completion-queues shared-receive-queues queue-pairs \
        completion-channels event-channels ids events-not-acknowledged; do
        grep -qx "$thing 1" <<<"$said" || { echo "$thing is not there" >>"$log"; status=1; }
    done
    [ "$(wc -l <<<"$said")" = 11 ] && ! verbs_ledger "$prefix" 1 >>"$log" || status=1
    check "$line" "$status"
fi

# --- versions: callers ask for those of the real libraries

line="names have the versions of the real libraries"
if wanted "$line"; then
    log=$work/versions.log
    : >"$log"
    status=0
    for library in libibverbs.so.1 librdmacm.so.1; do
        # What of the stand-in the real one does not have under the same version.
        missing=$(comm -23 <(objdump -T "$work/plain/$library" | awk '$4 == ".text" { print $(NF - 1), $NF }' | tr -d '()' | grep -vE '^(HAWSER_STANDIN|IBVERBS_PRIVATE)' | sort) \
            <("${there[@]}" objdump -T "$libraries/$library" | awk '$4 == ".text" { print $(NF - 1), $NF }' | tr -d '()' | sort))
        [ -z "$missing" ] || { echo "$library: $missing" >>"$log"; status=1; }
    done
    check "$line" "$status"
fi

line="what the host's libfabric asks of the real libraries is there"
if wanted "$line"; then
    log=$work/asked.log
    status=0
    for library in libfabric.so.1 libefa.so.1; do
        "${there[@]}" objdump -T "$libraries/$library"
    done | awk '/\*UND\*/ { print $(NF - 1), $NF }' | tr -d '()' | grep -E '^(IBVERBS|RDMACM)_' | sort -u >"$work/asked"
    objdump -T "$work"/plain/lib{ibverbs,rdmacm}.so.1 | awk '$4 == ".text" { print $(NF - 1), $NF }' | tr -d '()' | sort -u >"$work/offered"
    grep -q '^IBVERBS_PRIVATE_34 verbs_register_driver_34$' "$work/asked" || status=nothing
    comm -23 "$work/asked" "$work/offered" >"$log"
    [ ! -s "$log" ] || status=missing
    check "$line" "$status"
fi

# --- the probe

# on_device VARIABLE=VALUE… COMMAND…: over the stand-in as `device`.
on_device() {
    c-tests/patience.sh 120 "${there[@]}" env LD_LIBRARY_PATH="$root/$work/plain" HAWSER_VERBS_PERSONALITY="$device" "$@" </dev/null
}

# free_port: fills `port`, with one that nobody has now, and the next neither.
free_port() {
    port=$(python3 -c '
import socket
while True:
    a, b = socket.socket(), socket.socket()
    a.bind(("127.0.0.1", 0))
    try:
        b.bind(("127.0.0.1", a.getsockname()[1] + 1))
    except OSError:
        continue
    print(a.getsockname()[1])
    break')
}

for device in roce iwarp; do
    line="the probe says what $device devices say"
    wanted "$line" || continue
    log=$work/probe-$device.log
    probe_compile "$work/probe" >"$log" 2>&1 || { not_ok "the probe compiles" "$log"; continue; }
    free_port
    on_device HAWSER_VERBS_CM_TIMEOUT=20000 "$root/$work/probe" server 127.0.0.1 "$port" >"$work/probe-$device-server.log" 2>&1 &
    server=$!
    on_device "$root/$work/probe" client 127.0.0.1 "$port" >"$work/probe-$device-client.log" 2>&1
    status=$?
    wait "$server" || status=$?
    probe_agrees "$device" "$work/probe-$device" >>"$log" || status=differs
    check "$line" "$status"
done

# --- rdma-core's examples, which know nothing of this

# listens PORT: whether somebody does, where the stand-in's listeners are, which are TCP sockets.
listens() { awk -v "port=$(printf %04X "$1")" '$2 ~ ":" port "$" && $4 == "0A" { found = 1 } END { exit !found }' /proc/net/tcp; }

for device in roce iwarp; do
    line="rping, $device"
    if wanted "$line"; then
        log=$work/rping-$device.log
        free_port
        on_device env HAWSER_VERBS_STRICT=0 rping -s -a 127.0.0.1 -p "$port" -C 20 -v >"$work/rping-$device-server.log" 2>&1 &
        server=$!
        # A client that comes too early is refused, and that of an iWARP device then waits for itself for ever.
        until listens "$port" || ! kill -0 "$server" 2>/dev/null; do sleep 0.05; done
        on_device env HAWSER_VERBS_STRICT=0 rping -c -a 127.0.0.1 -p "$port" -C 20 -v >"$log" 2>&1
        wait "$server"
        status=$?
        [ "$(grep -ac '^ping data: rdma-ping-' "$log")" = 20 ] || status=data
        [ "$(grep -ac '^server ping data: rdma-ping-' "$work/rping-$device-server.log")" = 20 ] || status=data
        check "$line" "$status"
    fi
    line="ibv_devinfo, $device"
    if wanted "$line"; then
        log=$work/devinfo-$device.log
        on_device ibv_devinfo -v >"$log" 2>&1
        status=$?
        says 'state:[[:space:]]+PORT_ACTIVE' && says 'link_layer:[[:space:]]+Ethernet' || status=text
        check "$line" "$status"
    fi
done

sum
