#!/usr/bin/env bash
# What happens when something is wrong: a provider that is not there, no libfabric, parameters that
# make no sense, a provider that cannot do what was asked, a message that is too long, a rank that
# dies. Everything must end by itself, soon, with a line that says what to do.
#
#     c-tests/faults.sh debian12|debian13
#
# debian12 is this machine, debian13 the chroot that tests/hosts/debian13.sh keeps. Needs target/mca
# and target/release/hawser-info (`make`). Jobs are real: mpirun with c-tests/selection/who.c, which
# says who serves it, big.c beside it, whose messages are too long, or c-tests/mpi/killed.c, one of
# whose ranks dies. Logs lie in target/c-tests/HOST/faults; that of a failed check is shown. The last
# line is `N passed, N failed`.
#
# Open MPI 4.1.4 loses help texts, its own as well, and says `ORTE_ERROR_LOG … show_help.c` instead:
# a job in which that happened, and in which hawser said nothing by itself, is run again.
set -u
cd "$(dirname "$0")/.." || exit 2

. c-tests/host.sh

host_use "${1-}" || { echo "usage: $0 debian12|debian13" >&2; exit 2; }
# In the chroot mounts are private already.
case $host in
debian12) mtl=ofi propagation=private ;;
debian13) mtl=hawser propagation=unchanged ;;
esac
other=sockets
library=$root/target/mca/libhawser.so
work=target/c-tests/$host/faults
log=$work/log
mkdir -p "$work" || exit 2

# on_host COMMAND…: runs a command on the host, ended after 45 seconds; fills the log and `status`.
on_host() {
    c-tests/patience.sh 45 "${there[@]}" "$@" >"$log.raw" 2>&1 </dev/null
    status=$?
    # Open MPI 5.0 ends its help texts with a zero byte.
    tr -d '\0' <"$log.raw" >"$log"
}

components=(--mca mca_base_component_path "$root/target/mca:$stock" "${quiet[@]}")

# job OPTION…: a job of 2 ranks with the staged components, run on the host by the words of `by`.
by=() program=who arguments=()
job() {
    retold on_host "${by[@]}" mpirun --oversubscribe -n 2 "${components[@]}" "$@" "$root/$work/$program" "${arguments[@]}"
}

# says_line LINE: this is a line of the log: in a help text, once for all ranks, or said by each rank.
# A regular expression.
says_line() {
    local texts
    texts=$(grep -cxE -- "$1\.?" "$log")
    [ "$texts" = 1 ] || { [ "$texts" = 0 ] && says "^\[[^]]*\] hawser: $1\.?\$"; }
}

# ended: by itself, soon, and without a crash.
ended() { [ "$status" -lt 124 ] && ! says 'Segmentation|Aborted|panicked|watchdog'; }

# works: the job ended well and every message was right.
works() { ended && [ "$status" = 0 ] && says '^exchange: 64 messages, 0 wrong$'; }

# served: the job worked, and for both ranks hawser did it.
served() { works && [ "$(grep -cE "^rank [01] pid [0-9]+: pml cm, mtl $mtl [0-9.]+ of $library," "$log")" = 2 ]; }

# stands_back: the job worked, and for both ranks it was pml/ob1 that did it.
stands_back() { works && [ "$(grep -cE '^rank [01] pid [0-9]+: pml ob1, no mtl,' "$log")" = 2 ]; }

# refuses: the job did not work, and ended.
refuses() { ended && [ "$status" != 0 ] && ! says '^rank '; }

[ -e target/mca/libhawser.so ] || give_up "target/mca is staged"
compile() { on_host "$@"; [ "$status" = 0 ] || give_up "it compiles: $*"; }
compile mpicc -std=gnu11 -O1 -Wall -Wextra -Werror -o "$work/who" c-tests/selection/who.c
compile mpicc -std=gnu11 -O1 -Wall -Wextra -Werror -o "$work/big" c-tests/selection/big.c
compile mpicc -std=gnu11 -O1 -Wall -Wextra -Werror -o "$work/killed" c-tests/mpi/killed.c
compile cc -std=gnu11 -O1 -Wall -Wextra -Werror -shared -fPIC -o "$work/providers.so" c-tests/selection/providers.c

ask=(--mca mtl $mtl)
insist=(--mca pml cm --mca mtl $mtl)
include=mtl_${mtl}_provider_include

# --- providers that are not there

for wish in nonsuch nonsuch,neither shm; do
    line="no libfabric provider that mtl_${mtl}_provider_include( \(or mtl_ofi_provider_include\))? names \($wish\) can carry MPI messages here; there are: (.*, )?$own, .*Name one of these, or leave the parameter out"
    job "${ask[@]}" --mca $include $wish
    stands_back && says_line "$line"
    check "provider_include $wish: a line says what there is, and the host goes on with ob1" $?
    job "${insist[@]}" --mca $include $wish
    refuses && says_line "$line"
    check "provider_include $wish, pml cm: a line says what there is, and the job ends" $?
done
job "${insist[@]}" --mca mtl_${mtl}_provider_exclude net,tcp,udp,$other
refuses && says_line "every libfabric provider here \(.*\) is on the exclude list \(net,tcp,udp,$other\); name one in mtl_${mtl}_provider_include to use it all the same"
check "everything excluded, pml cm: a line says so, and the job ends" $?

# --- libfabric that is not there, or is none

mkdir -p "$work/empty" "$work/stranger" "$work/old" "$work/overlay"
: >"$work/empty/libfabric.so.1"
echo 'int nothing;' >"$work/stranger.c"
{
    echo 'unsigned fi_version(void) { return 1 << 16 | 5; }'
    printf 'void fi_%s(void) { __builtin_trap(); }\n' getinfo freeinfo dupinfo fabric strerror
} >"$work/old.c"
# The versions that those who are linked with libfabric look for.
printf 'FABRIC_1.%d {};\n' {0..9} >"$work/versions.map"
for kind in stranger old; do
    compile cc -shared -fPIC -Wl,-soname,libfabric.so.1 -Wl,--version-script="$work/versions.map" \
        -o "$work/$kind/libfabric.so.1" "$work/$kind.c"
done
line_empty="libfabric\.so\.1 cannot be loaded \(.*file too short\); install libfabric, Debian's package is libfabric1"
line_stranger="libfabric\.so\.1 has no fi_getinfo; it is not a libfabric"
line_old="libfabric 1\.5 is too old; hawser needs [0-9.]+ or newer"
line_absent="libfabric\.so\.1 cannot be loaded \(.*No such file or directory\); install libfabric, Debian's package is libfabric1"

# The words that run a command where the file is missing, in a mount namespace of its own.
# shellcheck disable=SC2016 # expanded there
absent=(unshare -m --propagation $propagation bash -c '
    set -e
    mount -t tmpfs none "$0"
    mkdir "$0/upper" "$0/work"
    mknod "$0/upper/libfabric.so.1" c 0 0
    mount -t overlay none -o "lowerdir=$1,upperdir=$0/upper,workdir=$0/work" "$1"
    [ ! -e "$1/libfabric.so.1" ]
    shift
    exec "$@"' "$root/$work/overlay" "$libraries")
kinds="empty stranger old"
on_host "${absent[@]}" true
if [ "$status" = 0 ]; then
    kinds="$kinds absent"
else
    echo "not run: a libfabric.so.1 that is absent: it needs root, private mounts and overlayfs"
fi

for kind in $kinds; do
    line=line_$kind
    with=(-x LD_LIBRARY_PATH="$root/$work/$kind") by=() info=(env LD_LIBRARY_PATH="$root/$work/$kind")
    [ "$kind" != absent ] || { with=() by=("${absent[@]}") info=("${absent[@]}"); }
    # The second host's libmpi is linked with libfabric: without a library of that name, no job starts.
    if [ "$host" = debian12 ] || [ $kind = stranger ] || [ $kind = old ]; then
        job "${with[@]}" "${ask[@]}" --mca $include $own
        stands_back && says_line "${!line}"
        check "libfabric $kind: a line says so, and the host goes on with ob1" $?
        job "${with[@]}"
        stands_back && ! says hawser
        check "libfabric $kind: who did not ask for hawser hears nothing" $?
        job "${with[@]}" --mca mtl_base_verbose 1
        stands_back && [ "$(grep -cE "hawser: mtl:hawser: not used: ${!line}\$" "$log")" = 2 ]
        check "libfabric $kind: verbose, it says why" $?
        job "${with[@]}" "${insist[@]}" --mca $include $own
        refuses && says_line "${!line}"
        check "libfabric $kind, pml cm: a line says so, and the job ends" $?
    fi
    on_host "${info[@]}" "$root/target/release/hawser-info"
    ended && [ "$(grep -c libfabric "$log")" = 1 ] && says_line "libfabric: ${!line}"
    check "libfabric $kind: hawser-info says so" $?
    # Where the host itself is linked with libfabric there is none then.
    if says '^host: Open MPI [45]'; then
        [ "$status" = 0 ] && [ "$(grep -c ' mpirun ' "$log")" = 2 ] && says ' mpirun .* --mca pml ob1 --mca btl usnic,self PROGRAM$' &&
            says ' mpirun .* --mca pml ob1 --mca btl smcuda,self PROGRAM$'
    else
        [ "$status" = 1 ] && ! says mpirun && says '^host: no Open MPI'
    fi
    check "libfabric $kind: hawser-info names the command lines that work without" $?
    on_host "${info[@]}" "$root/target/release/hawser-info" --json
    ended && python3 - "$log" "^${!line}\$" <<'PYTHON'
import json, re, sys
found = json.load(open(sys.argv[1]))
fabric = found["libfabric"]
assert fabric["providers"] == [] and re.fullmatch(sys.argv[2], fabric["why_none"]), fabric
assert [one["component"] for one in found["commands"]] == (["btl usnic", "btl smcuda"] if found["host"] else []), found["commands"]
PYTHON
    check "libfabric $kind: hawser-info --json says both" $?
    on_host "${info[@]}" "$root/target/release/hawser-info" --doctor
    ended && [ "$status" = 1 ] && says_line "bad   libfabric: mtl hawser is not used: ${!line}" && [ "$(grep -c '^bad   libfabric' "$log")" = 1 ] &&
        says '^good  networks' && says '^good  shared memory'
    check "libfabric $kind: hawser-info --doctor says what to do, and looks at all else" $?
    on_host "${info[@]}" "$root/target/release/hawser-info" --doctor --json
    ended && python3 - "$log" "^mtl hawser is not used: ${!line}\$" <<'PYTHON'
import json, re, sys
bad, = [one for one in json.load(open(sys.argv[1]))["findings"] if one["about"] == "libfabric"]
assert bad["grade"] == "bad" and bad["remedy"] and re.fullmatch(sys.argv[2], bad["what"]), bad
PYTHON
    check "libfabric $kind: hawser-info --doctor --json says the same" $?
    on_host "${info[@]}" "$root/target/release/hawser-info" --params
    ended && [ "$status" = 0 ] && says '^mtl hawser$' && says '^btl usnic$' && says '^ +mtl_hawser_provider_include' && ! says 'libfabric\.so\.1'
    check "libfabric $kind: hawser-info --params lists the parameters all the same" $?
    on_host "${info[@]}" "$root/target/release/hawser-perf" --local -t ofi -s 8 -n 10
    ended && [ "$status" = 1 ] && [ "$(grep -c '' "$log")" = 1 ] && says "^hawser-perf: ofi does not start: .*${!line}"
    check "libfabric $kind: hawser-perf says so in one line" $?
    on_host "${info[@]}" "$root/target/release/hawser-perf" --local -t smcuda -s 8 -n 10
    ended && [ "$status" = 0 ]
    check "libfabric $kind: hawser-perf measures what does without" $?
done
by=()

# --- values that make no sense

# refused_value PARAMETER VALUE LINE [OPTION…]: the job ends with this line.
refused_value() {
    local name=mtl_${mtl}_$1 value=$2 line=$3
    shift 3
    job "${insist[@]}" --mca $include $provider --mca "$name" "$value" "$@"
    refuses && says_line "$line"
    check "$name $value ($provider${*:+, ${*: -2}}): a line says what is allowed, and the job ends" $?
}
p=mtl_${mtl} provider=$own
refused_value progress_event_cnt 0 "${p}_progress_event_cnt is 0; it must be 1 to [0-9]+"
refused_value progress_event_cnt -1 "${p}_progress_event_cnt is -1; it must be 1 to [0-9]+"
refused_value enable_sep 2 "${p}_enable_sep is 2; it must be 0 to 1"
refused_value enable_sep -1 "${p}_enable_sep is -1; it must be 0 to 1"
refused_value thread_grouping 2 "${p}_thread_grouping is 2; it must be 0 to 1" --mca ${p}_enable_sep 1
refused_value thread_grouping 1 "${p}_thread_grouping needs ${p}_enable_sep; set both or neither"
refused_value num_ctxts 0 "${p}_num_ctxts is 0; it must be 1 to [0-9]+"
refused_value num_ctxts 65536 "${p}_num_ctxts is 65536; it must be 1 to [0-9]+"
refused_value enable_sep 1 ".*provider $provider .*enable_sep.*"
provider=$other
refused_value num_ctxts 0 "${p}_num_ctxts is 0; it must be 1 to [0-9]+" --mca ${p}_enable_sep 1

job "${ask[@]}" --mca $include $own --mca ${p}_progress_event_cnt 0
stands_back && says_line "${p}_progress_event_cnt is 0; it must be 1 to [0-9]+"
check "${p}_progress_event_cnt 0 without pml cm: the host goes on with ob1" $?
job --mca pml cm --mca mtl hawser --mca mtl_ofi_provider_include $own --mca mtl_ofi_progress_event_cnt 0
refuses && says_line "mtl_[a-z]+_progress_event_cnt is 0; it must be 1 to [0-9]+"
check "mtl_ofi_progress_event_cnt 0: hawser under its own name refuses it too" $?

# Names that are none are the host's to refuse: it says what is allowed and keeps the default.
# refused_name PARAMETER VALUES
refused_name() {
    job "${insist[@]}" --mca $include $own --mca "${p}_$1" nonsense
    served && says_line " *Variable *: ${p}_$1" && says_line " *Value *: nonsense" && says_line " *Valid values *: $2"
    check "${p}_$1 nonsense: the host says what is allowed and keeps the default" $?
}
refused_name tag_mode '.*auto.*ofi_tag_1.*ofi_tag_2.*ofi_tag_full.*'
refused_name av '.*map.*table.*'
refused_name control_progress '.*auto.*manual.*unspec.*'
refused_name data_progress '.*auto.*manual.*unspec.*'

# --- ofi_tag_full on a provider that cannot

# contexts LOW HIGH: the greatest communicator id of both ranks lies between.
contexts() {
    local id ids
    ids=$(sed -nE 's/^rank .*, contexts up to ([0-9]+), .*/\1/p' "$log")
    [ "$(wc -w <<<"$ids")" = 2 ] || return 1
    for id in $ids; do [ "$id" -ge "$1" ] && [ "$id" -le "$2" ] || return 1; done
}
lacking="mtl_${mtl}_tag_mode is ofi_tag_full, but the provider PROVIDER lacks .*FI_DIRECTED_RECV.*; use auto, ofi_tag_1 or ofi_tag_2"

job "${insist[@]}" --mca $include $own --mca ${p}_tag_mode ofi_tag_full
served && contexts 65536 2147483647
check "ofi_tag_full on a provider that can" $?
job "${insist[@]}" --mca $include $own --mca ${p}_tag_mode auto
served && contexts 65536 2147483647
check "auto on the same provider is ofi_tag_full" $?
poor=(-x LD_PRELOAD="$root/$work/providers.so")
for where in alone beside; do
    if [ $where = alone ]; then
        text="where no provider can" provider=$own with=("${poor[@]}" -x NO_DIRECTED_RECV=all)
    else
        text="where others can" provider=$other with=("${poor[@]}" -x NO_DIRECTED_RECV=$other)
    fi
    job "${with[@]}" "${insist[@]}" --mca $include $provider --mca ${p}_tag_mode ofi_tag_full
    refuses && says_line "${lacking/PROVIDER/$provider}"
    check "ofi_tag_full on a provider that cannot, $text: a line says what to use, and the job ends" $?
    job "${with[@]}" "${ask[@]}" --mca $include $provider --mca ${p}_tag_mode ofi_tag_full
    stands_back && says_line "${lacking/PROVIDER/$provider}"
    check "ofi_tag_full on a provider that cannot, $text, without pml cm: the host goes on with ob1" $?
    job "${with[@]}" "${insist[@]}" --mca $include $provider
    served && contexts 256 4095
    check "auto on that provider, $text, is ofi_tag_1" $?
    job "${with[@]}" "${insist[@]}" --mca $include $provider --mca ${p}_tag_mode ofi_tag_1
    served && contexts 256 4095
    check "ofi_tag_1 on that provider, $text" $?
    job "${with[@]}" "${insist[@]}" --mca $include $provider --mca ${p}_tag_mode ofi_tag_2
    served && contexts 65536 16777215
    check "ofi_tag_2 on that provider, $text" $?
done

# --- messages beyond the provider's longest: those of who.c are up to 262144 bytes

for provider in $own "tcp;ofi_rxm"; do
    short=("${poor[@]}" "${insist[@]}" --mca $include "$provider")
    job -x MAX_MSG_SIZE=262144 "${short[@]}"
    served
    check "$provider: messages as long as the provider can" $?
    job -x MAX_MSG_SIZE=262143 "${short[@]}"
    ended && [ "$status" != 0 ] && says 'MPI_ERRORS_ARE_FATAL' && ! says '^exchange:' &&
        says_line "a message of 262144 bytes exceeds the provider's limit of 262143 bytes and was not sent; send smaller pieces or choose another provider"
    check "$provider: a longer message is refused, a line says why, and the job ends" $?
    program=big arguments=(50000)
    job -x MAX_MSG_SIZE=50000 "${short[@]}"
    ended && [ "$status" = 0 ] && says '^PASS big$' && says "a message of 50001 bytes exceeds the provider's limit of 50000 bytes"
    check "$provider: a program that handles errors itself goes on, however it sent" $?
    program=who arguments=()
done

# --- a rank that dies

# left: the ranks of the job that are still there; those that are dying have ten seconds.
left() {
    local pid
    for pid in $(sed -nE 's/^rank [0-9]+ pid ([0-9]+)$/\1/p' "$log"); do
        c-tests/patience.sh 10 tail -f /dev/null --pid="$pid"
        case $(readlink "/proc/$pid/exe" 2>/dev/null) in */killed) echo "$pid" ;; esac
    done
}

# killed PROVIDER MOMENT: the job ends because a rank has died or because another has noticed it.
killed() {
    local tries
    for tries in 1 2 3 4 5 6 7 8 9 10; do
        on_host mpirun --oversubscribe -n 3 "${components[@]}" "${insist[@]}" --mca $include "$1" --mca mtl_base_verbose 1 "$root/$work/killed" "$2"
        ! says 'signal 9|MPI_ERRORS_ARE_FATAL' || return 0
        is_lost || return 1
        lost=$((lost + 1))
    done
    return 1
}

for provider in $own "tcp;ofi_rxm" $other; do
    for when in start idle transfer collective finalize; do
        killed "$provider" $when
        noticed=$?
        remaining=$(left)
        [ $noticed = 0 ] && [ "$status" != 0 ] && [ "$status" != 124 ] && [ -z "$remaining" ] &&
            [ "$(grep -cE '^rank [0-2] pid [0-9]+$' "$log")" = 3 ] &&
            [ "$(grep -c "hawser: mtl:$mtl:prov: $provider on " "$log")" = 3 ] &&
            ! says 'goes on with|watchdog|Segmentation|Aborted|panicked'
        check "$provider: a rank killed ($when): the job ends, and nothing of it stays${remaining:+: $remaining}" $?
    done
done

# An mpirun that lets the survivor live: it is hawser that has to notice.
for provider in $own "tcp;ofi_rxm" $other; do
    on_host mpirun --enable-recovery --oversubscribe -n 2 "${components[@]}" "${insist[@]}" --mca $include "$provider" --mca mtl_base_verbose 1 "$root/$work/killed" receive
    remaining=$(left)
    ended && [ -z "$remaining" ] && [ "$(grep -c "hawser: mtl:$mtl:prov: $provider on " "$log")" = 2 ] &&
        says '^rank 0 has (an error|nothing|a message that is right)$'
    check "$provider: a message that its sender's death cuts short does not count as received${remaining:+: $remaining}" $?
done

# The provider would put sends to it off for ever. Each on one host: half a minute. The line that says so may be lost
# with the process, which ends at once.
[ "$host" = debian12 ] && provider=$own || provider="tcp;ofi_rxm"
on_host mpirun --enable-recovery --oversubscribe -n 2 "${components[@]}" "${insist[@]}" --mca $include "$provider" --mca mtl_base_verbose 1 "$root/$work/killed" send
remaining=$(left)
ended && [ -z "$remaining" ] && [ "$(grep -c "hawser: mtl:$mtl:prov: $provider on " "$log")" = 2 ] &&
    says 'rank 0 has an error$'
check "$provider: a send to a rank that has died is an error${remaining:+: $remaining}" $?

# The provider would take all of them, and drop them.
for provider in $own "tcp;ofi_rxm"; do
    on_host mpirun --enable-recovery --oversubscribe -n 2 "${components[@]}" "${insist[@]}" --mca $include "$provider" --mca mtl_base_verbose 1 "$root/$work/killed" silence
    remaining=$(left)
    ended && [ -z "$remaining" ] && [ "$(grep -c "hawser: mtl:$mtl:prov: $provider on " "$log")" = 2 ] &&
        says 'rank 0 has an error$'
    check "$provider: short messages to a rank that has died after another are an error before long${remaining:+: $remaining}" $?
done

rm -f "$log.raw"
sum
