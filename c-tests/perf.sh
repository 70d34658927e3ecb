#!/usr/bin/env bash
# hawser-perf: each transport, bench and operation between two processes, and whoever else may be at the other end.
#
#     c-tests/perf.sh debian12|debian13 [WORD …]
#
# What is no question of the host (the command line, the connection between the two) is tried on debian12 only, which is
# this machine. A failure is one line on standard error. Afterwards no file may be left. The last line is `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 2

. c-tests/host.sh
. c-tests/verbs/build.sh

host_use "${1-}" || { echo "usage: $0 debian12|debian13 [WORD …]" >&2; exit 2; }
shift
words=("$@")
work=$PWD/target/c-tests/$host/perf
here=$root/target/c-tests/$host/perf
log=$work/log
rm -rf "$work"
mkdir -p "$work/tmp" || exit 2
# What runs in the background of a script ignores SIGINT, unless it is told not to.
perf=("${there[@]}" env --default-signal=INT "TMPDIR=$here/tmp" XDG_RUNTIME_DIR= "$root/target/release/hawser-perf")

# no_files LINE: nothing is left but the lock of the user's folder, which is for all jobs.
no_files() {
    local left
    left=$(find "$work/tmp" -mindepth 2 ! -path "*/hawser-$(id -u)/door")
    rm -rf "$work/tmp"/*
    check "$1: nothing is left${left:+: $left}" "$([ -z "$left" ]; echo $?)"
}

# figures TRANSPORT BENCH OPERATION LENGTH…: whether `log` has them.
figures() {
    python3 - "$log" "$@" <<'PYTHON'
import json, sys
path, transport, bench, operation, *lengths = sys.argv[1:]
found = json.load(open(path))
said = [found[key] for key in ("transport", "bench", "operation")]
assert said == [transport, bench, operation], said
assert found["device"] and found["version"] and found["peer"]
results = found["results"]
assert [one["bytes"] for one in results] == [int(length) for length in lengths], results
for one in results:
    assert one["iterations"] == 60 and one["seconds"] > 0, one
    if bench == "latency":
        assert 0 < one["least_us"] <= one["median_us"] <= one["p99_us"], one
    else:
        assert one["messages_per_s"] > 0 and (one["mb_per_s"] > 0 or one["bytes"] == 0), one
PYTHON
}

# measures LINE TRANSPORT BENCH OPERATION "LENGTH …" OPTION…: with a process of its own.
measures() {
    local line=$1 transport=$2 bench=$3 operation=$4 lengths=$5 status
    shift 5
    wanted "$line" || return 0
    c-tests/patience.sh 60 "${perf[@]}" --local -t "$transport" -b "$bench" -o "$operation" -s "${lengths// /,}" -n 60 -w 5 --json "$@" \
        >"$log" 2>"$work/errors" </dev/null
    status=$?
    # shellcheck disable=SC2086 # a list of lengths
    if [ "$status" = 0 ]; then figures "$transport" "$bench" "$operation" $lengths 2>>"$work/errors" || status=figures; fi
    [ "$status" = 0 ] || cat "$work/errors" >>"$log"
    check "$line" "$status"
}

for transport in smcuda usnic; do
    for bench in latency bandwidth rate; do
        measures "$transport: $bench of messages" $transport $bench send "0 1 8 4097 100000 1048576"
        measures "$transport: $bench of PUTs" $transport $bench put "1 4096 1000000"
        measures "$transport: $bench of GETs" $transport $bench get "1 4096 1000000"
    done
    measures "$transport: one message under way at a time" $transport bandwidth send "8 65536" -W 1
done
# The RDMA device is the software stand-in's.
mkdir -p "$work/verbs" && verbs_libraries "target/c-tests/$host/perf/verbs" || give_up "the stand-in compiles"
bare=("${perf[@]}")
perf=("${there[@]}" env "LD_LIBRARY_PATH=$here/verbs" HAWSER_VERBS_DEVICES=roce_0=127.0.0.1/roce "${perf[@]:${#there[@]}}")
for operation in send put get; do
    measures "verbs: latency, $operation" verbs latency $operation "1 4096 1000000" --set btl_verbs_ipaddr_include=127.0.0.0/8
    measures "verbs: rate, $operation" verbs rate $operation "1 4096 100000" --set btl_verbs_ipaddr_include=127.0.0.0/8
done
perf=("${bare[@]}")
for bench in latency bandwidth rate; do
    measures "ofi: $bench of messages" ofi $bench send "0 1 8 4097 100000 1048576"
done
measures "ofi: one message under way at a time" ofi bandwidth send "8 65536" -W 1
measures "ofi: a window that has no room for all its messages" ofi bandwidth send "4194304" -W 4096
measures "ofi: another provider, by a parameter for both sides" ofi latency send "8 65536" --set mtl_ofi_provider_include=udp --set mtl_ofi_provider_exclude=
measures "usnic: encrypted, by a parameter for both sides" usnic bandwidth send "8 65536" --set btl_usnic_protect_payload=1
measures "smcuda: messages in pieces, by a parameter" smcuda latency send "8192 65536" --set btl_smcuda_max_send_size=2k

line="a table for people"
if wanted "$line"; then
    c-tests/patience.sh 60 "${perf[@]}" --local -s 1:64:4 -n 50 >"$log" 2>&1 </dev/null
    status=$?
    [ "$(grep -cE '^ +[0-9]+ +50( +[0-9.]+){3}$' "$log")" = 4 ] && grep -q '^# smcuda (.*latency of send$' "$log" || status=lines
    check "$line" "$status"
fi
no_files "local measurements"

if [ "$host" != debian12 ]; then
    sum
    exit
fi

# fails LINE STATUS WANTED ARGUMENT…: with one line that says it, and nothing else.
fails() {
    local line=$1 wanted_status=$2 text=$3
    shift 3
    wanted "$line" || return 0
    c-tests/patience.sh 60 "${perf[@]}" "$@" >"$work/out" 2>"$log" </dev/null
    status=$?
    if [ "$status" = "$wanted_status" ]; then status=0; else status="$status, not $wanted_status"; fi
    [ "$(grep -c '' "$log")" = 1 ] && says "^hawser-perf: .*$text" || status=line
    check "$line" "$status"
}

fails "an option that there is not" 2 "--nothing: there is no such option" --nothing
fails "an option that is no text" 2 "that is no text \(UTF-8\)" $'--\xff'
fails "a value that is no text" 2 "that is no text \(UTF-8\)" --local --set $'btl_usnic_connectivity_map=\xff'
fails "a value for an option that takes none" 2 "--json=yes: --json takes no value" --json=yes
fails "an option without its value" 2 "-s: a value must follow" -s
fails "a length that is too long" 2 "\(-s\); it must be 0 to" --local -s 4000M
fails "a PUT of nothing" 2 "\(-s\); it must be 1 to" --local -o put -s 0
fails "two hosts" 2 "two: .*not several" one two
fails "both versions of IP alone" 2 "-4 and -6 exclude each other" --local -4 -6
fails "a port without a server" 2 "-p: it is for a server and its client, and --local has neither" --local -p 47592
fails "a version of IP without a server" 2 "-4: it is for a server and its client" -4 --local
fails "where a client listens" 2 "--bind 127.0.0.1: it is where a server listens, and HOST makes this a client" 127.0.0.1 -a 127.0.0.1
fails "a transport that there is not" 2 "-t nothing: .*take smcuda, usnic, verbs or ofi" --local -t nothing
fails "a server's transport that there is not" 2 "-t nothing: .*take smcuda, usnic, verbs or ofi" -t nothing
fails "a parameter that there is not" 2 "btl_smcuda_nothing: there is no such parameter" --local --set btl_smcuda_nothing=1
fails "a server's parameter that there is not" 2 "btl_smcuda_nothing: there is no such parameter" --set btl_smcuda_nothing=1
fails "a parameter of another transport" 2 "btl_usnic_link: it belongs to the component btl usnic, and -t smcuda does not have it" --local --set btl_usnic_link=socket
fails "a parameter that only Open MPI has" 2 "mtl_ofi_priority: it is for Open MPI alone" --local -t ofi --set mtl_ofi_priority=5
fails "a value that a parameter cannot have" 2 "--set btl_smcuda_eager_limit is 12x" --local --set btl_smcuda_eager_limit=12x
fails "a value out of its range" 1 "btl_smcuda_eager_limit is 12; it must be 1024 to" --local --set btl_smcuda_eager_limit=12
fails "a value of a matching transport's out of its range" 2 "mtl_ofi_enable_sep is 2; it must be 0 to 1" --local -t ofi --set mtl_ofi_enable_sep=2
fails "a module that there is not" 1 "no module nothing0" --local -t usnic -d nothing0 -s 8
fails "a PUT where there is none" 1 "smcuda has no put .*-o send" --local --set btl_smcuda_flags=1 -o put -s 8
fails "a PUT of a matching transport" 2 "ofi has no put at all: .*-o send" --local -t ofi -o put -s 8
fails "a GET of a matching transport" 2 "ofi has no get at all: .*-o send" --local -t ofi -o get -s 8
fails "a module of a matching transport" 2 "provider_include=NAME takes a provider" --local -t ofi -d tcp -s 8
fails "a provider that there is not" 1 "ofi does not start: .*nothing" --local -t ofi --set mtl_ofi_provider_include=nothing -s 8
fails "a host that there is not" 1 "nowhere.invalid" nowhere.invalid
fails "a port where nobody listens" 1 "start hawser-perf there first" 127.0.0.1 -p 1
fails "an address that is not here" 1 "192.0.2.1, port" --bind 192.0.2.1

# pipe NAME: a new one, because what still has the last one open would keep what is in it.
pipe() { rm -f "$work/$1" && mkfifo "$work/$1"; }
# serve OPTION…: a server on a port of its own; sets `server` and `port`.
serve() {
    pipe server-pipe
    "${perf[@]}" -p 0 "$@" >"$work/server-pipe" 2>"$work/server-errors" </dev/null &
    server=$!
    exec 4<"$work/server-pipe"
    read -r told <&4
    port=${told##* -p }
}
# served STATUS: its status, in `status`, once it has ended; after a client that has failed it would wait for another.
served() {
    [ "$1" = 0 ] || kill "$server"
    wait "$server"
    status=$?
    exec 4<&-
}

for way in "127.0.0.1 -4" "::1 -6"; do
    read -r address family <<<"$way"
    for transport in smcuda usnic ofi; do
        line="$transport: two programs that meet at $address"
        wanted "$line" || continue
        serve "$family" --bind "$address"
        c-tests/patience.sh 60 "${perf[@]}" "$address" "$family" -p "$port" -t $transport -s 8,100000 -n 60 --json >"$log" 2>&1 </dev/null
        client=$?
        served $client
        if [ "$status$client" = 00 ]; then figures $transport latency send 8 100000 2>>"$log" || status=figures; else status=$client,$status; fi
        check "$line" "$status"
    done
done

# A stranger, in Python: `say` is sent, and what comes until the end is printed.
stranger() {
    python3 - "$@" <<'PYTHON'
import socket, sys
where, port, say = sys.argv[1:]
say = say.encode().decode("unicode_escape").encode("latin-1")
if where == "listen":
    server = socket.create_server(("127.0.0.1", 0))
    print(server.getsockname()[1], flush=True)
    wire, _ = server.accept()
else:
    wire = socket.create_connection((where, int(port)))
wire.sendall(say)
wire.settimeout(30)
try:
    while wire.recv(4096):
        pass
except ConnectionResetError:
    pass
PYTHON
}
hello='hawserpf\x01\x00\x00\x00'
line="a stranger is sent away, and the next client is served"
if wanted "$line"; then
    serve --bind 127.0.0.1
    stranger 127.0.0.1 "$port" 'GET / HTTP/1.0\r\n\r\n'
    stranger 127.0.0.1 "$port" 'hawserpf\x02\x00\x00\x00'
    c-tests/patience.sh 60 "${perf[@]}" 127.0.0.1 -p "$port" -t smcuda -s 8 -n 60 --json >"$log" 2>&1 </dev/null
    served $?
    [ "$status" = 0 ] && figures smcuda latency send 8 2>>"$log" || status=figures
    cat "$work/server-errors" >>"$log"
    [ "$(grep -c 'was sent away' "$log")" = 2 ] && says 'no hawser-perf: it says "GET / HT"' && says 'another version' || status=lines
    check "$line" "$status"
fi

# rubbish LINE WANTED BYTES: a client that greets, and then says this.
rubbish() {
    wanted "$1" || return 0
    serve --bind 127.0.0.1 --timeout 5
    stranger 127.0.0.1 "$port" "$hello$3"
    served $?
    cp "$work/server-errors" "$log"
    if [ "$status" = 1 ]; then status=0; else status="$status, not 1"; fi
    [ "$(grep -c '' "$log")" = 1 ] && says "^hawser-perf: .*$2" || status=line
    check "$1" "$status"
}
rubbish "a frame of no kind" "no known kind" '\x63\x00\x00\x00\x00'
rubbish "a frame without an end" "a frame of 4294967295 bytes" '\x00\xff\xff\xff\xff'
rubbish "a plan that is cut off" "the client's plan: it is cut off" '\x00\x03\x00\x00\x00abc'
rubbish "a plan out of bounds" "the client's plan: a window of 0" \
    '\x00\x1e\x00\x00\x00\x01\x00\x00\x00\x00\x00\x06smcuda\x00\x00\x00\x00\x01\x08\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00'
rubbish "a frame that is not due" "sends Mark where Plan is due" '\x04\x00\x00\x00\x00'

line="a port that speaks something else"
if wanted "$line"; then
    pipe pipe
    stranger listen 0 'SSH-2.0-x\r\n' >"$work/pipe" &
    exec 3<"$work/pipe"
    read -r port <&3
    exec 3<&-
    fails "$line" 1 'no hawser-perf: it says "SSH-2.0-"' 127.0.0.1 -p "$port"
fi

# interrupts LINE WHO: a measurement is interrupted at one side, or at both; each says so in a line, and ends.
interrupts() {
    local line=$1 who=$2 client of errors
    wanted "$line" || return 0
    pipe pipe
    errors=("$work/errors" "$work/server-errors")
    if [ "$who" = local ]; then
        "${perf[@]}" --local -t "$transport" -s 8 -n 10000000 >"$work/pipe" 2>"$work/errors" </dev/null &
        client=$! errors=("$work/errors")
    else
        serve --bind 127.0.0.1
        "${perf[@]}" 127.0.0.1 -p "$port" -t "$transport" -s 8 -n 10000000 >"$work/pipe" 2>"$work/errors" </dev/null &
        client=$!
    fi
    exec 3<"$work/pipe"
    read -r told <&3
    # shellcheck disable=SC2046 # a list of numbers
    case $who in
    local) kill -INT "$client" $(pgrep -P "$client") ;;
    both) kill -INT "$client" "$server" ;;
    client) kill -INT "$client" ;;
    server) kill -INT "$server" ;;
    esac
    wait "$client"
    status=$?
    if [ "$who" != local ]; then wait "$server" || status=$status$?; else status=${status}1; fi
    exec 3<&-
    [ "$who" = local ] || exec 4<&-
    if [ "$status" = 11 ]; then status=0; else status="$status, not 11"; fi
    cat "${errors[@]}" >"$log"
    for of in "${errors[@]}"; do
        [ "$(grep -c '' "$of")" = 1 ] && grep -qE '^hawser-perf: (the other side: )?ended by SIGINT$' "$of" || status=line
    done
    says '^hawser-perf: ended by SIGINT$' || [ "$who" = local ] || status=who
    check "$line" "$status"
    no_files "$line"
}
for transport in smcuda usnic ofi; do
    for who in local both client server; do
        interrupts "$transport: interrupted ($who)" $who
    done
done

# ends LINE VICTIM SIGNAL WANTED [ROUNDS]: one of two ends or stops in the middle, and the other says so in one line.
ends() {
    local line=$1 victim=$2 signal=$3 text=$4 rounds=${5-1}
    wanted "$line" || return 0
    while
        one_ends
        [ "$status" = 0 ] && [ $((rounds -= 1)) -gt 0 ]
    do :; done
    check "$line" "$status"
    log=$work/log
}

# One round of that.
one_ends() {
    local victim=$victim client survivor
    pipe pipe
    serve --bind 127.0.0.1 --timeout 2
    "${perf[@]}" 127.0.0.1 -p "$port" -t "$transport" -s 8 -n 10000000 --timeout 2 >"$work/pipe" 2>"$work/errors" </dev/null &
    client=$!
    exec 3<"$work/pipe"
    # The head of its table: it begins to measure.
    read -r told <&3
    survivor=$server
    [ "$victim" = client ] || survivor=$client
    [ "$victim" = server ] || victim=$client
    [ "$victim" = "$client" ] || victim=$server
    kill "-$signal" "$victim"
    wait "$survivor" 2>/dev/null
    status=$?
    kill -KILL "$victim" 2>/dev/null
    wait "$victim" 2>/dev/null
    exec 3<&- 4<&-
    log=$work/errors
    [ "$survivor" = "$client" ] || log=$work/server-errors
    if [ "$status" = 1 ]; then status=0; else status="$status, not 1"; fi
    [ "$(grep -c '^hawser-perf: ' "$log")" = 1 ] && says "$text" || status=line
}
# Whether the transport or the connection is the first to know that a process is gone is chance.
for transport in smcuda usnic ofi; do
    ends "$transport: the server is killed" server KILL "the other side (has ended|is lost)" 12
    ends "$transport: the client is killed" client KILL "the other side (has ended|is lost)" 12
    ends "$transport: the server is stopped" server STOP "(nothing has come|has said nothing) for 2 s"
done

sum
