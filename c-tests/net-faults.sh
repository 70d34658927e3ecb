#!/usr/bin/env bash
# What happens to jobs between hosts when something is taken away: a network that is down for two
# seconds, a rank that is stopped and goes on later, a rank that is killed, a host that is gone; when
# ranks compute and answer nothing; and when strangers send to a job.
#
#     c-tests/net-faults.sh debian12|debian13 [WORD …]
#
# debian12 is this machine, debian13 the chroot that tests/hosts/debian13.sh keeps; the networks are
# those of c-tests/net/bed.sh. With words, only the checks whose line holds all of them. Each fault
# comes when data is under way, and jobs that are to outlive it end when data has been under way
# again. Logs lie in target/c-tests/HOST/net/logs, and that of a failed check is shown. The last line
# is `N passed, N failed`.
#
#     HAWSER_BTL=tcp           another BTL than usnic; the host's own tests the tests
#     HAWSER_BTL_OPTIONS=…     more words for mpirun
#     HAWSER_STOP=5            for how many seconds a rank is stopped
#     HAWSER_DOWN=2            for how many seconds a network is down
#     HAWSER_PEER_TIMEOUT=5    after how long a host that is gone is given up (btl_usnic_peer_timeout); how
#     HAWSER_END=30            long ranks may take to end after a death, in seconds
#     HAWSER_FORGED=1000000    how many forged packets, of each sort
set -u
cd "$(dirname "$0")/.." || exit 2
. c-tests/host.sh
. c-tests/net/bed.sh
. c-tests/net/job.sh

job_begin "$@"
stop_seconds=${HAWSER_STOP:-5} down_seconds=${HAWSER_DOWN:-2} end_seconds=${HAWSER_END:-30} forged=${HAWSER_FORGED:-1000000}

# The test's own files; the first is what jobs wait for.
enough=$PWD/$work/enough
log=$work/logs/fault

# begin LINE: a new check, if it is wanted.
begin() {
    line=$1
    wanted "$btl $line" || return 1
    log=$work/logs/fault-$(tr -c 'a-z0-9\n' - <<<"$btl $line")
    began=$SECONDS why= job= note=
    rm -f "$enough"
    : >"$log"
    rm -f "$log.forge"
    bed_rules
}

# need COMMAND…: what must succeed for the check; says what did not.
need() {
    [ -z "$why" ] || return 1
    "$@" || { why="failed: $*"; return 1; }
}

# finish: the check's verdict, and nothing of its job stays.
finish() {
    : >"$enough"
    [ -z "$job" ] || { kill -TERM "$job" 2>/dev/null; wait "$job" 2>/dev/null; }
    bed_sweep
    if [ -z "$why" ]; then
        ok "$line ($((SECONDS - began)) s${note:+, $note})"
    else
        not_ok "$line ($why; $((SECONDS - began)) s)" "$log"
    fi
    rm -f "$enough"
}

# launch HOSTS RANKS WORD…: a job that goes on beside the test.
launch() {
    job_words "$@"
    CHECK_WATCHDOG=${CHECK_WATCHDOG:-400} bed_on 1 "$bed_root/c-tests/patience.sh" 420 "${start[@]}" >"$log" 2>&1 </dev/null &
    job=$!
}

running() { kill -0 "$job" 2>/dev/null; }

# until_true COMMAND…: waits for it, as long as the job runs; two minutes at most.
until_true() {
    clock_start
    until "$@"; do
        clock_read
        running && [ "$clock" -lt 120000 ] || return 1
        sleep 0.05
    done
}

beyond() { [ "$(bed_bytes)" -gt "$1" ]; }

# vanished NUMBER: so many of the router's objections to long packets, at least, were kept back.
vanished() {
    note="$(bed_count lost) objections kept back"
    [ "$(bed_count lost)" -ge "$1" ]
}

# crossing: a megabyte more crosses the networks for data while the job runs.
crossing() { until_true beyond $(($(bed_bytes) + 1000000)) && running; }

# quiet_network: nothing crosses for a while. What was under way may still arrive.
quiet_network() {
    local before
    sleep 0.5
    before=$(bed_bytes)
    sleep 0.5
    [ "$(bed_bytes)" -lt $((before + 20000)) ]
}

# passes PROGRAM: once it has been told, the job ends well.
passes() {
    : >"$enough"
    wait "$job"
    status=$?
    job=
    [ "$status" = 0 ] && grep -aqx "PASS $1" "$log"
}

# rank_of PROGRAM HOST: the process of a rank on that host.
rank_of() {
    local entry
    for entry in /proc/[0-9]*; do
        case $(readlink "$entry/exe" 2>/dev/null) in */"$1") ;; *) continue ;; esac
        [ "$entry/ns/net" -ef "/proc/${bed_pids[$2]}/ns/net" ] || continue
        echo "${entry#/proc/}"
        return
    done
    return 1
}

# left: processes on the hosts that are not ours.
left() {
    local host entry
    for ((host = 1; host <= bed_hosts; host++)); do
        for entry in /proc/[0-9]*; do
            [ "${entry#/proc/}" != "${bed_pids[$host]}" ] && [ "$entry/ns/net" -ef "/proc/${bed_pids[$host]}/ns/net" ] || continue
            tr '\0' ' ' <"$entry/cmdline" 2>/dev/null
            echo
        done
    done
}

# nothing_left: what dies has ten seconds.
nothing_left() {
    clock_start
    while [ -n "$(left)" ]; do
        clock_read
        [ "$clock" -lt 10000 ] || return 1
        sleep 0.1
    done
}



job_programs alltoall killed busy late
cc -std=gnu11 -O2 -Wall -Wextra -Wpedantic -Werror c-tests/net/forge.c -o "$work/forge" || give_up "forge compiles"
job_network 3
alltoall=$bed_root/$work/alltoall enough_there=$bed_root/$work/enough

# --- a network that goes and comes back

# down_and_up HOSTS RANKS HOST HOW
device() { bed_link "$1" e0 "$2"; }
cable() { ip link set "node${1}e0" "$2"; }
down_and_up() {
    begin "$4 of host $3 down for $down_seconds s and up again: $2 ranks on $1 hosts go on" || return
    launch "$1" "$2" "$alltoall" "$enough_there"
    need crossing && need "$4" "$3" down && sleep "$down_seconds"
    need running
    "$4" "$3" up
    need crossing
    need passes alltoall
    finish
}
# The protocol is the same on both hosts: what only the network does to it is tried on one.
engine_too() { [ "$system" = debian12 ] || [ "$btl" = tcp ] || whole; }

down_and_up 2 2 2 device
! engine_too || down_and_up 2 4 1 device
! engine_too || down_and_up 3 6 3 device
down_and_up 3 6 2 cable

# All at once, again and again.
engine_too && begin "every cable down and up, five times: 6 ranks on 3 hosts go on" && {
    launch 3 6 "$alltoall" "$enough_there"
    for round in 1 2 3 4 5; do
        need crossing
        for host in 1 2 3; do need cable $host down; done
        need sleep "0.$round"
        for host in 1 2 3; do cable $host up; done
    done
    need crossing
    need passes alltoall
    finish
}

# --- a rank that is stopped

# stopped HOSTS RANKS HOST
stopped() {
    local victim
    begin "a rank on host $3 stopped for $stop_seconds s: $2 ranks on $1 hosts go on" || return
    launch "$1" "$2" "$alltoall" "$enough_there"
    need crossing
    if victim=$(rank_of alltoall "$3"); then
        need kill -STOP "$victim"
        sleep "$stop_seconds"
        need quiet_network
        need running
        kill -CONT "$victim"
        need crossing
    else
        need rank_of alltoall "$3"
    fi
    need passes alltoall
    finish
}
stopped 2 2 2
stopped 3 6 3

# --- a rank that is killed

victim_is_dead() {
    local pid
    pid=$(sed -nE 's/^rank 1 pid ([0-9]+)$/\1/p' "$log")
    [ -n "$pid" ] && case $(readlink "/proc/$pid/exe" 2>/dev/null) in */killed) false ;; esac
}

# ends_soon: the job, by itself; fills `status`.
ends_soon() {
    clock_start
    while running; do
        clock_read
        [ "$clock" -lt $((end_seconds * 1000)) ] || return 1
        sleep 0.1
    done
    wait "$job"
    status=$?
    job=
}

# is_stopped PROCESS
is_stopped() { [ "$(sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null)" = T ]; }

says() { tr -d '\0' <"$log" | grep -qE -- "$1"; }
silent() { ! says "$1"; }
fails() { [ "$status" != 0 ]; }

# names_peer: somebody else's line names the victim, by its host, rank or address. Each line's own
# origin does not count.
names_peer() {
    tr -d '\0' <"$log" | sed -E '/^rank [0-9]+ pid/d; /^\[?node2[]:[]/d; s/^(\[[^]]*\])+//' |
        grep -qE 'node2|rank 1([^0-9]|$)|\[[0-9]+,[0-9]+\],1\]|10\.77\.0\.2'
}

# killed HOSTS RANKS MOMENT [OPTION…]
killed() {
    local hosts=$1 ranks=$2 moment=$3
    shift 3
    begin "a rank killed ($moment): the others of $ranks on $hosts hosts end${*:+ ($*)}" || return
    launch "$hosts" "$ranks" "$@" "$bed_root/$work/killed" "$moment"
    need until_true victim_is_dead
    need ends_soon
    need silent 'goes on with|watchdog|Segmentation|Aborted|panicked'
    # With --enable-recovery it is the BTL that has to notice, and mpirun of 5.0 calls that success;
    # without, mpirun ends the job.
    case " $* " in
    *" --enable-recovery "*) [ "$btl" = tcp ] || need names_peer ;;
    *) need fails ;;
    esac
    need nothing_left
    finish
}
for moment in transfer collective; do
    killed 2 2 $moment
    killed 3 3 $moment
    # The host's own TCP of 4.1 then waits for ever.
    [ "$btl $system" != "tcp debian12" ] || continue
    killed 2 2 $moment --enable-recovery
    killed 3 3 $moment --enable-recovery
done

# A host that is gone says nothing more, and nobody says it for it. TCP notices after minutes.
if [ "$btl" != tcp ]; then
    begin "a host gone for good: the others of 2 ranks on 2 hosts end" && {
        launch 2 2 --mca btl_usnic_peer_timeout "${HAWSER_PEER_TIMEOUT:-5}" "$alltoall" "$enough_there"
        need crossing && need cable 2 down
        need ends_soon
        need fails
        # Both halves lose each other; whoever is first ends the job.
        need says 'rank [01] of job'
        need silent 'watchdog|Segmentation|Aborted|panicked'
        need nothing_left
        cable 2 up
        finish
    }
fi

# --- ranks that compute, and those beside them that answer for them

# ranks_of PROGRAM HOST: the processes of all ranks on that host.
ranks_of() {
    local entry
    for entry in /proc/[0-9]*; do
        case $(readlink "$entry/exe" 2>/dev/null) in */"$1") ;; *) continue ;; esac
        [ "$entry/ns/net" -ef "/proc/${bed_pids[$2]}/ns/net" ] && echo "${entry#/proc/}"
    done
}

# one_of NUMBER PROGRAM HOST: the first or the second of two ranks there. Whichever of them has begun
# what both share, neither may be needed for it.
one_of() {
    local pids
    pids=($(ranks_of "$2" "$3"))
    [ ${#pids[@]} = 2 ] && echo "${pids[$1 - 1]}"
}

computing() { [ "$(tr -d '\0' <"$log" | grep -cE '^rank [0-9]+ computes$')" -ge "$1" ]; }

# kills NUMBER: that rank of host 2, when both there compute.
kills() {
    local pid
    pid=$(one_of "$1" busy 2) && kill -KILL "$pid"
}

# reject HOST [WORDS]: the host refuses what comes by its network for data, in words of nft; without
# words no more.
reject() {
    local host=$1
    shift
    {
        echo "table inet refusals"
        echo "delete table inet refusals"
        [ $# = 0 ] || echo "table inet refusals { chain in { type filter hook input priority 0; policy accept; iifname \"e0\" $* counter reject; }; }"
    } | nsenter --target "${bed_pids[$host]}" --net nft -f -
}

# refused HOST: so many packets so far; some.
refused() {
    local count
    count=$(nsenter --target "${bed_pids[$1]}" --net nft list table inet refusals | sed -nE 's/.*counter packets ([0-9]+) .*/\1/p')
    note="$count refused"
    [ "$count" -gt 0 ]
}

# refusing WORDS: both hosts refuse such packets, and each has some to refuse. What is under way when they begin may
# all go one way, and then nothing comes the other way: once more.
refusing() {
    for _ in {1..20}; do
        reject 1 "$@" && reject 2 "$@" || return 1
        sleep 1
        refused 1 && refused 2 && return
        reject 1
        reject 2
        crossing || return 1
    done
    return 1
}

if [ "$btl" != tcp ]; then
    begin "ranks that compute for longer than the timeout while data is on its way to them: 4 ranks on 2 hosts go on" && {
        launch 2 4 --mca btl_usnic_peer_timeout 3 "$bed_root/$work/busy" 8
        need passes busy
        need computing 2
        need silent 'no longer answers'
        finish
    }
    for which in 1 2; do
        begin "rank $which of a host stopped for longer than the timeout, the one beside it not: 4 ranks on 2 hosts go on" && {
            launch 2 4 --mca btl_usnic_peer_timeout 3 "$alltoall" "$enough_there"
            need crossing
            if victim=$(one_of $which alltoall 2); then
                need kill -STOP "$victim"
                sleep 6
                need running
                kill -CONT "$victim"
                need crossing
            else
                need one_of $which alltoall 2
            fi
            need passes alltoall
            need silent 'no longer answers'
            finish
        }
        begin "rank $which of a host stopped while the one beside it computes for longer than the timeout: 4 ranks on 2 hosts go on" && {
            launch 2 4 --mca btl_usnic_peer_timeout 3 "$bed_root/$work/busy" 8
            need until_true computing 2
            if victim=$(one_of $which busy 2); then
                need kill -STOP "$victim"
                sleep 6
                need running
                kill -CONT "$victim"
            else
                need one_of $which busy 2
            fi
            need passes busy
            need silent 'no longer answers'
            finish
        }
        # Only the rank beside it can say that it has ended: mpirun lets the others live, the network
        # may not say it, and time does not.
        begin "rank $which of a host killed while both there compute: the rank that sends to it notices" && {
            bed_filter "meta l4proto icmp"
            launch 2 4 --enable-recovery "$bed_root/$work/busy" 120
            need until_true computing 2
            need kills $which
            need until_true says 'no longer answers'
            need silent 'PASS|watchdog|Segmentation|panicked'
            bed_filter
            finish
        }
    done
    # Nobody of the node can answer, as where a batch system suspends a job: silence is no evidence.
    begin "all ranks of a host stopped for 10 s, and no timeout: 4 ranks on 2 hosts go on" && {
        launch 2 4 "$alltoall" "$enough_there"
        need crossing
        victims=$(ranks_of alltoall 2)
        # shellcheck disable=SC2086 # a list
        need kill -STOP $victims
        sleep 10
        need running
        # shellcheck disable=SC2086 # a list
        kill -CONT $victims
        need crossing
        need passes alltoall
        need silent 'no longer answers'
        finish
    }
    # The check of the way gives up after 2 s here; the kernel of the other host takes calls all the same.
    begin "a rank alone on its host stopped behind MPI_Init, when nobody has heard of it yet: 2 ranks on 2 hosts go on" && {
        launch 2 2 --mca btl_usnic_connectivity_error_num_retries 8 "$bed_root/$work/late"
        need until_true says 'rank 1 stops'
        if victim=$(rank_of late 2); then
            need until_true is_stopped "$victim"
            sleep 8
            need running
            kill -CONT "$victim"
        else
            need rank_of late 2
        fi
        need passes late
        need silent 'no longer answers|[Dd]atagrams? arrives?'
        finish
    }
    engine_too && begin "both hosts refuse everything for 10 s: 4 ranks on 2 hosts go on" && {
        launch 2 4 "$alltoall" "$enough_there"
        need crossing
        need refusing "meta l4proto udp"
        sleep 10
        need running
        need refused 1 && need refused 2
        reject 1
        reject 2
        need crossing
        need passes alltoall
        need silent 'no longer answers|[Dd]atagrams? arrives?'
        finish
    }
    # As where the packet filter of a host stays as it is.
    engine_too && begin "both hosts refuse everything for 20 s, and refusals are no evidence: 4 ranks on 2 hosts go on" && {
        launch 2 4 --mca btl_usnic_refusal_timeout 0 "$alltoall" "$enough_there"
        need crossing
        need refusing "meta l4proto udp"
        sleep 20
        need running
        need refused 1 && need refused 2
        reject 1
        reject 2
        need crossing
        need passes alltoall
        need silent 'no longer answers|[Dd]atagrams? arrives?'
        finish
    }
    # What is said of processes counts more than what the network says: these live.
    engine_too && begin "both hosts refuse data, and not questions, for 20 s: 4 ranks on 2 hosts go on" && {
        launch 2 4 "$alltoall" "$enough_there"
        need crossing
        # The first byte tells packets between modules from those between agents (src/wire/probe.rs).
        need refusing "meta l4proto udp @th,64,8 != 0x51"
        sleep 20
        need running
        need refused 1 && need refused 2
        reject 1
        reject 2
        need crossing
        need passes alltoall
        need silent 'no longer answers'
        finish
    }
    # What was cut for the old path does not get through whole, and what is cut from now on is to.
    engine_too && begin "a router with a hop of 1400 bytes between, which says nothing: 4 ranks on 2 hosts go on" && {
        launch 2 4 "$alltoall" "$enough_there"
        need crossing
        need bed_narrow 1400
        need crossing && need until_true vanished 1
        need passes alltoall
        need silent 'no longer answers|[Dd]atagrams? arrives?'
        bed_straight
        finish
    }
    # An agent that is not heard is no bad way, while the peer itself is: it has ten seconds to be heard, also on
    # a busy machine.
    for filter in "" " udp length > 1000"; do
        engine_too && begin "${filter:+long }pings are lost, and nothing else: 4 ranks on 2 hosts go on" && {
            bed_filter "meta l4proto udp @th,64,32 0x51010000$filter"
            launch 2 4 --mca btl_base_verbose 1 --mca btl_usnic_connectivity_ack_timeout 250 "$alltoall" "$enough_there"
            need until_true says 'those of 1472 bytes were not.*goes on'
            need crossing
            need passes alltoall
            need silent 'no longer answers|[Dd]atagrams? arrives?'
            bed_filter
            finish
        }
    done
fi

# --- strangers

# ports HOST: the UDP ports there, each once.
ports() {
    local port
    # The files of one network: those of its holder.
    sed -nE 's/^ *[0-9]+: [0-9A-F]+:([0-9A-F]{4}) .*/\1/p' "/proc/${bed_pids[$1]}/net/udp" "/proc/${bed_pids[$1]}/net/udp6" |
        while read -r port; do echo $((16#$port)); done | sort -nu
}
has_ports() { [ -n "$(ports "$1")" ]; }

# counted RANK NAME: what the usnic BTL has counted there.
counted() { sed -nE "s/^counter $1 $2 ([0-9]+)\$/\1/p" "$log"; }

# none_accepted: each rank took as many segments and requests as the other sent, each once, but for those that this
# one withdrew, whose data went in others; and none with a genuine tag that made no sense; and much was dropped on
# host 2, where the forged ones went.
none_accepted() {
    local rank name taken sent missing withdrawn dropped=0
    for rank in 0 1; do
        missing=0 withdrawn=$(counted $((1 - rank)) num_withdrawals)
        for name in "frag_recvs frag_sends" "chunk_recvs chunk_sends" "get_recvs gets"; do
            taken=$(counted $rank "num_${name% *}") sent=$(counted $((1 - rank)) "num_${name#* }")
            [ -n "$taken" ] && [ -n "$sent" ] && [ "$taken" -le "$sent" ] || { echo "rank $rank: ${name% *} $taken, the other's ${name#* } $sent" >>"$log"; return 1; }
            missing=$((missing + sent - taken))
        done
        [ "$missing" -le "${withdrawn:-0}" ] || { echo "rank $rank has not taken $missing, and the other withdrew $withdrawn" >>"$log"; return 1; }
        for name in unk badfrag refused stray_data; do
            [ "$(counted $rank num_${name}_recvs)" = 0 ] || { echo "rank $rank believed something: num_${name}_recvs" >>"$log"; return 1; }
        done
        [ "$(counted $rank num_bad_acks)" = 0 ] || { echo "rank $rank believed an acknowledgement" >>"$log"; return 1; }
    done
    for name in short_recvs version_recvs kind_recvs flags_recvs length_recvs crc_errors replay_recvs; do dropped=$((dropped + $(counted 1 num_$name))); done
    note="$dropped dropped, none accepted"
    [ "$dropped" -ge $((forged / 100)) ]
}

# looked_at: the forger has looked at packets to host 2.
looked_at() {
    "$work/forge" look node2e0 10.77.0.2 1 65535 3000 >"$log.forge" 2>&1
    note="$(sed -n 's/^plain //p' "$log.forge") of $(sed -n 's/^seen //p' "$log.forge") can be read"
    grep -qx 'seen 3000' "$log.forge"
}

# forge NUMBER COMMAND…: the forger has sent so many.
forge() {
    local number=$1
    shift
    "$@" "$number" >"$log.forge" 2>&1
    tail -n 1 "$log.forge" | grep -qx "sent $number"
}

if [ "$btl" != tcp ] && ! engine_too; then
    :
elif [ "$btl" != tcp ]; then
    begin "$forged forged packets from a stranger on host 3: 2 ranks on 2 hosts go on" && {
        launch 2 2 "$alltoall" "$enough_there"
        need crossing && need has_ports 2
        open=$(ports 2)
        for port in $open; do
            need forge $((forged / $(wc -w <<<"$open"))) bed_on 3 "$bed_root/$work/forge" send 10.77.0.2 "$port" "$port"
        done
        need crossing
        need passes alltoall
        need none_accepted
        finish
    }
    begin "$forged replayed and altered packets with the peer's own address: 2 ranks on 2 hosts go on" && {
        # Only protection tells an altered payload behind a genuine header.
        launch 2 2 --mca btl_usnic_protect_payload 1 "$alltoall" "$enough_there"
        need crossing && need has_ports 2
        need forge "$forged" "$work/forge" replay node2e0 10.77.0.2 1 65535
        need crossing
        need passes alltoall
        need none_accepted
        finish
    }
    # The guard zones behind messages are known bytes, and go along with them in MPI_Alltoall.
    for protected in 0 1; do
        begin "packets of ranks on 2 hosts are looked at on their way, protect_payload $protected" && {
            launch 2 2 --mca btl_usnic_protect_payload $protected "$alltoall" "$enough_there"
            need crossing
            need looked_at
            [ $protected = 0 ] || need grep -qx 'plain 0' "$log.forge"
            [ $protected = 1 ] || need grep -qx 'plain [1-9][0-9]*' "$log.forge"
            need crossing
            need passes alltoall
            finish
        }
    done
else
    # The forger itself: everything that it sends arrives, in its kinds.
    for address in 10.77.0.2 fd77::2; do
        begin "the forger: $forged packets arrive at $address" && {
            bed_on 2 "$bed_root/$work/forge" listen $address 5555 >"$log" 2>&1 &
            job=$!
            need until_true says '^listening$'
            need forge "$forged" bed_on 1 "$bed_root/$work/forge" send $address 5555 5555
            need wait "$job"
            job=
            cat "$log.forge" >>"$log"
            need says "^received [1-9]"
            need says "^headed [1-9]"
            need says "^longer [1-9]"
            need says "^shorter [1-9]"
            finish
        }
        begin "the forger: replays of packets to $address arrive" && {
            bed_on 2 "$bed_root/$work/forge" listen $address 5555 >"$log" 2>&1 &
            job=$!
            need until_true says '^listening$'
            "$work/forge" replay node2e0 $address 5555 5555 3000 >"$log.forge" 2>&1 &
            forger=$!
            need until_true grep -qsx collecting "$log.forge"
            need bed_on 1 "$bed_root/$work/forge" send $address 5555 5555 1000 >/dev/null
            need wait "$forger"
            need wait "$job"
            job=
            cat "$log.forge" >>"$log"
            need says '^sent 3000$'
            # All of them, with the right checksums: the socket has room for more than was sent.
            need says '^received 4000$'
            finish
        }
    done
fi

rm -f "$enough"
sum
