#!/usr/bin/env bash
# Which transport an Open MPI job gets: under which names hawser is found, which parameters decide,
# when it stands back, and which hosts it refuses.
#
#     c-tests/selection.sh debian12|debian13
#
# debian12 is this machine, debian13 the chroot that tests/hosts/debian13.sh keeps. Needs target/mca
# (`make stage`). Jobs are real: mpirun with 2 ranks of c-tests/selection/who.c, which asks the host
# itself whose code it has selected and exchanges checked messages. The hosts to be refused are
# stand-ins (c-tests/selection/host.c) and the real one with another version text. Logs lie in
# target/c-tests/HOST/selection; that of a failed check is shown. The last line is
# `N passed, N failed`.
#
# Open MPI 4.1.4 loses help texts, its own as well, and says `ORTE_ERROR_LOG … show_help.c` instead:
# a job in which that happened, and in which hawser said nothing by itself, is run again.
set -u
cd "$(dirname "$0")/.." || exit 2

. c-tests/host.sh

host_use "${1-}" || { echo "usage: $0 debian12|debian13" >&2; exit 2; }
case $host in
debian12)
    tree=
    pal=libopen-pal.so.40
    version=4.1.4 unknown=4.2.4
    source=v4_1 flags=
    first=ofi
    ;;
debian13)
    tree=$(tests/hosts/debian13.sh path)
    pal=libopen-pal.so.80
    version=5.0.7 unknown=5.1.7
    source=v5_0 flags=-DOMPI_5
    first=hawser
    ;;
esac
other=sockets
library=$root/target/mca/libhawser.so
# What gives libhawser.so the name ofi: the second host's libmpi holds a component ofi, and what is
# loaded first has the name.
first_loaded=()
[ "$host" = debian12 ] || first_loaded=(-x LD_PRELOAD="$library")
crate=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
work=target/c-tests/$host/selection
log=$work/log
mkdir -p "$work" || exit 2

# on_host COMMAND…: runs a command on the host, ended after a minute.
on_host() { c-tests/patience.sh 60 "${there[@]}" "$@"; }

# job OPTION…: a job of 2 ranks with the staged components; fills the log and `status`.
job() { plain_job --mca mca_base_component_path "$root/target/mca:$stock" "${quiet[@]}" "$@"; }

# plain_job OPTION…: the same, with the host's own components only.
plain_job() { retold once "$@"; }

once() {
    on_host mpirun --oversubscribe -n 2 "$@" "$root/$work/who" >"$log.raw" 2>&1 </dev/null
    status=$?
    # Open MPI 5.0 ends its help texts with a zero byte.
    tr -d '\0' <"$log.raw" >"$log"
}

# works: the job ended well and every message was right.
works() { [ "$status" = 0 ] && says '^exchange: 64 messages, 0 wrong$'; }

# served NAME [LAYOUT]: the job worked, and for both ranks hawser did it under this name, with the
# limits of this layout. A provider may reserve the highest tag bit, which halves the contexts.
declare -A limits=(
    [any]='[0-9]+, tag_ub [0-9]+'
    [full]='(1073741823|536870911), tag_ub 2147483647'
    [1]='(4095|2047), tag_ub 2147483647'
    [2]='(16777215|8388607), tag_ub 524287'
)
served() {
    works && [ "$(grep -cE "^rank [01] pid [0-9]+: pml cm, mtl $1 ${crate//./\\.} of $library, contexts up to ${limits[${2-any}]}\$" "$log")" = 2 ]
}

# stands_back: the job worked, and for both ranks it was pml/ob1 that did it.
stands_back() { works && [ "$(grep -cE '^rank [01] pid [0-9]+: pml ob1, no mtl,' "$log")" = 2 ]; }

# chose PROVIDER: both ranks say that this is the provider.
chose() { [ "$(grep -cE "hawser: mtl:[a-z]+:prov: $1 on " "$log")" = 2 ]; }

[ -e target/mca/libhawser.so ] || give_up "target/mca is staged"
on_host mpicc -std=gnu11 -O1 -Wall -Wextra -Werror -o "$work/who" c-tests/selection/who.c >"$log" 2>&1 || give_up "who.c compiles"
on_host cc -std=gnu11 -O1 -Wall -Wextra -Werror -o "$work/load" c-tests/selection/load.c >"$log" 2>&1 || give_up "load.c compiles"

# --- what ompi_info lists

# listing FILE COMMAND…: what ompi_info says of the MTLs.
listing() {
    local file=$1
    shift
    on_host "$@" ompi_info --parsable --param mtl all --level 9 >"$file" 2>"$log"
}

# attributes NAME FILE: value, type, status and level of every parameter of a component, a line each.
attributes() { sed -nE "s/^mca:mtl:$1:param:mtl_$1_([a-z_]+:(value|type|status|level):.*)/\1/p" "$2" | sort; }

listing "$work/stock" env
attributes ofi "$work/stock" >"$work/stock.ofi"
listing "$work/ours" env OMPI_MCA_mca_base_component_path="$root/target/mca:$stock"
names="ofi hawser"
[ "$host" = debian12 ] || listing "$work/preloaded" env LD_PRELOAD="$library"

grep -qxF "mca:mtl:hawser:version:\"component:$crate\"" "$work/ours"
check "ompi_info lists the component hawser $crate" $?
ofi=$work/ours
[ "$host" = debian12 ] || ofi=$work/preloaded
grep -qxF "mca:mtl:ofi:version:\"component:$crate\"" "$ofi"
check "ompi_info lists the component ofi $crate" $?
grep -qxF "mca:mtl:ofi:version:\"component:$version\"" "$work/stock"
check "without hawser it is ofi $version" $?

exclude=shm,sockets,tcp,udp,rstream,usnic hmem=
[ "$host" = debian12 ] || exclude=$exclude,net hmem=disable_hmem=false
for name in $names; do
    file=$work/ours
    [ "$name" = hawser ] || file=$ofi
    attributes "$name" "$file" >"$work/ours.$name"
    for pair in provider_include= provider_exclude=$exclude verbose=0 priority=25 progress_event_cnt=100 \
        tag_mode=auto control_progress=unspec data_progress=unspec av=map enable_sep=0 thread_grouping=0 \
        num_ctxts=1 $hmem; do
        grep -qxF "${pair%%=*}:value:${pair#*=}" "$work/ours.$name"
        check "mtl_${name}_${pair%%=*} is \"${pair#*=}\" by default" $?
    done
    [ -s "$work/stock.ofi" ] && diff "$work/stock.ofi" "$work/ours.$name" >"$log" 2>&1
    check "mtl_${name}_*: names, defaults, types, status and levels are those of the host's own component" $?
done

grep -q '^mca:mtl:hawser:param:mtl_hawser_progress_event_cnt:help:.*more than 100 count as 100' "$work/ours"
check "mtl_hawser_progress_event_cnt: the help says what more than 100 means" $?

# Under the name hawser, what the user gave for ofi is the default.
given="priority=30 progress_event_cnt=7 tag_mode=ofi_tag_2 control_progress=manual data_progress=auto av=table
    enable_sep=1 thread_grouping=1 num_ctxts=3 provider_include=one,two provider_exclude=three verbose=2"
[ "$host" = debian12 ] || given="$given disable_hmem=true"
settings=()
for pair in $given; do settings+=("OMPI_MCA_mtl_ofi_$pair"); done
listing "$work/given" env OMPI_MCA_mca_base_component_path="$root/target/mca:$stock" "${settings[@]}"
for name in ofi hawser; do
    attributes $name "$work/given" >"$work/given.$name"
    for pair in $given; do
        grep -qxF "${pair%%=*}:value:${pair#*=}" "$work/given.$name"
        check "mtl_ofi_$pair: mtl_${name}_${pair%%=*} has this value" $?
    done
done

# --- who serves

plain_job --mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include $own
works && ! says libhawser && says "mtl ofi ${version//./\\.} of "
check "without hawser, the host's own component serves ofi" $?

job "${first_loaded[@]}" --mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include $own --mca mtl_base_verbose 1
served ofi
check "libhawser.so serves under the name ofi" $?
[ "$(grep -c "mtl:ofi:prov: $own on " "$log")" = 2 ]
check "verbose, it prints mtl:ofi:prov: $own" $?

job --mca pml cm --mca mtl hawser --mca mtl_hawser_provider_include $own --mca mtl_hawser_verbose 1
served hawser && chose $own
check "libhawser.so serves under the name hawser, and says over which provider" $?

# --- parameters

hawser=(--mca pml cm --mca mtl hawser)

job "${hawser[@]}" --mca mtl_ofi_provider_include $own --mca mtl_ofi_verbose 1
served hawser && chose $own
check "hawser honours mtl_ofi_provider_include $own" $?
job "${hawser[@]}" --mca mtl_ofi_provider_include $other --mca mtl_ofi_verbose 1
served hawser && chose $other
check "hawser honours mtl_ofi_provider_include $other" $?
job "${hawser[@]}" --mca mtl_ofi_provider_include $own --mca mtl_hawser_provider_include $other --mca mtl_hawser_verbose 1
served hawser && chose $other
check "mtl_hawser_provider_include $other wins over mtl_ofi_provider_include $own" $?
job "${hawser[@]}" --mca mtl_ofi_provider_include $other --mca mtl_hawser_provider_include $own --mca mtl_hawser_verbose 1
served hawser && chose $own
check "mtl_hawser_provider_include $own wins over mtl_ofi_provider_include $other" $?

hawser+=(--mca mtl_hawser_provider_include $own)
for mode in auto:full ofi_tag_full:full ofi_tag_1:1 ofi_tag_2:2; do
    job "${hawser[@]}" --mca mtl_hawser_tag_mode ${mode%:*}
    served hawser ${mode#*:}
    check "tag_mode ${mode%:*} has the contexts and tags of layout ${mode#*:}" $?
done
job "${hawser[@]}" --mca mtl_ofi_tag_mode ofi_tag_2
served hawser 2
check "hawser honours mtl_ofi_tag_mode" $?
job "${hawser[@]}" --mca mtl_ofi_tag_mode ofi_tag_2 --mca mtl_hawser_tag_mode ofi_tag_1
served hawser 1
check "mtl_hawser_tag_mode ofi_tag_1 wins over mtl_ofi_tag_mode ofi_tag_2" $?
job "${hawser[@]}" --mca mtl_ofi_tag_mode ofi_tag_1 --mca mtl_hawser_tag_mode ofi_tag_2
served hawser 2
check "mtl_hawser_tag_mode ofi_tag_2 wins over mtl_ofi_tag_mode ofi_tag_1" $?

job "${hawser[@]}" --mca mtl_hawser_provider_exclude $own,$other --mca mtl_hawser_verbose 1
served hawser && chose $own
check "an include list overrides the exclude list" $?
job --mca pml cm --mca mtl hawser --mca mtl_hawser_provider_exclude net,tcp,udp --mca mtl_hawser_verbose 1
served hawser && chose $other
check "an exclude list of one's own leaves the rest: $other" $?
if [ "$host" = debian12 ]; then
    job --mca pml cm --mca mtl hawser --mca mtl_hawser_provider_exclude tcp,udp --mca mtl_hawser_verbose 1
    served hawser && chose $other
    check "who excludes tcp excludes tcp;ofi_rxm and net too" $?
    job --mca pml cm --mca mtl hawser --mca mtl_hawser_provider_exclude net,udp --mca mtl_hawser_verbose 1
    served hawser && chose 'tcp;ofi_rxm'
    check "who excludes net does not exclude tcp" $?
    job --mca pml cm --mca mtl hawser --mca mtl_hawser_provider_include tcp --mca mtl_hawser_verbose 1
    served hawser && chose 'tcp;ofi_rxm'
    check "who includes tcp means tcp;ofi_rxm too" $?
fi
job --mca pml cm --mca mtl hawser --mca mtl_hawser_provider_include 'tcp;ofi_rxm' --mca mtl_hawser_verbose 1
served hawser && chose 'tcp;ofi_rxm'
check "a layered provider can be named" $?
job --mca pml cm --mca mtl hawser --mca mtl_hawser_provider_include nonsuch,$other --mca mtl_hawser_verbose 1
served hawser && chose $other
check "of an include list, the providers that are there count" $?

job "${hawser[@]}" --mca mtl_hawser_av table
served hawser
check "address vectors of kind table work" $?
job "${hawser[@]}" --mca mtl_hawser_control_progress auto --mca mtl_hawser_data_progress auto
served hawser
check "automatic progress works" $?
job "${hawser[@]}" --mca mtl_hawser_control_progress manual --mca mtl_hawser_data_progress manual
served hawser
check "manual progress works" $?
job "${hawser[@]}" --mca mtl_hawser_progress_event_cnt 1
served hawser
check "completions can be read one by one" $?
scalable=(--mca pml cm --mca mtl hawser --mca mtl_hawser_provider_include $other --mca mtl_hawser_enable_sep 1)
job "${scalable[@]}" --mca mtl_hawser_num_ctxts 2 --mca mtl_hawser_thread_grouping 1
served hawser
check "$other: a scalable endpoint with 2 contexts and thread grouping works" $?
job "${scalable[@]}" --mca mtl_hawser_num_ctxts 2
served hawser
check "$other: a scalable endpoint with 2 contexts works" $?

# --- when nobody asks for it

job
stands_back && ! says hawser
check "by default the exclude list keeps hawser out, silently" $?
job --mca mtl_base_verbose 1
stands_back && says "mtl:hawser: not used: every libfabric provider here .*$own.* is on the exclude list \($exclude\)"
check "verbose, it says why" $?
excluded="every libfabric provider here .*$own.* is on the exclude list \($exclude\)"
job --mca mtl hawser
stands_back && says "$excluded"
check "asked for as hawser, it says so without verbosity, and stands back" $?
job "${first_loaded[@]}" --mca mtl ofi
stands_back && says "$excluded"
check "asked for as ofi, it says so without verbosity, and stands back" $?
job "${first_loaded[@]}" --mca mtl ofi,hawser
stands_back && says "$excluded"
check "asked for under both names, it says so too, and stands back" $?
job "${first_loaded[@]}" --mca mtl ^nonsuch
stands_back && ! says hawser
check "on a host that keeps no name out by default, it stands back silently under both" $?
job --mca mtl_ofi_provider_exclude "" --mca mtl_base_verbose 1
served hawser
check "an empty mtl_ofi_provider_exclude allows all" $?
job --mca mtl_hawser_provider_exclude "" --mca mtl_base_verbose 1
served hawser
check "an empty mtl_hawser_provider_exclude allows all" $?
job --mca mtl_hawser_provider_include $own
served hawser
check "an include list is enough, without pml and mtl" $?
job --mca mtl_hawser_provider_include $own --mca mtl_hawser_priority 5 --mca mtl_base_verbose 1
stands_back && chose $own
check "with a priority below ob1's 20, it stands back" $?
both=("${first_loaded[@]}" --mca mtl ofi,hawser --mca mtl_base_verbose 1)
for provider in $own $other; do
    job "${both[@]}" --mca mtl_ofi_provider_include $provider
    { served ofi || served hawser; } && chose $provider && [ "$(grep -c ':prov: ' "$log")" = 2 ]
    check "with both names open, include list $provider holds, and only one of them opens an endpoint" $?
done
job "${both[@]}" --mca mtl_ofi_provider_exclude net,tcp,udp
{ served ofi || served hawser; } && chose $other
check "with both names open, the exclude list holds" $?
job "${both[@]}" --mca mtl_ofi_provider_include $own --mca mtl_ofi_tag_mode ofi_tag_2
served ofi 2 || served hawser 2
check "with both names open, mtl_ofi_tag_mode holds" $?
if [ "$host" = debian13 ]; then
    # Beside the host's own component, which is called ofi.
    beside=(--mca pml cm --mca mtl ofi,hawser --mca mtl_ofi_provider_include $own)
    job "${beside[@]}" --mca mtl_hawser_priority 30
    served hawser
    check "beside the host's own component, it serves with the higher priority" $?
    job "${beside[@]}" --mca mtl_hawser_priority 24
    works && [ "$(grep -cE "^rank [01] pid [0-9]+: pml cm, mtl ofi ${version//./\\.} of " "$log")" = 2 ]
    check "beside the host's own component, it leaves the job to it with the lower priority" $?
fi

# --- hosts that are refused

# load LIBRARY…: loads them, then hawser, in a program without MPI; fills the log and `status`.
load() {
    on_host env OMPI_MCA_mca_base_component_show_load_errors=1 "$root/$work/load" "$@" "$library" >"$log" 2>"$log.err"
    status=$?
    cat "$log.err" >>"$log"
}

# accepted: no refusal, filled components, nothing said.
accepted() {
    [ "$status" = 0 ] && [ "$(cat "$log")" = $'refusal: \ncomponents: ofi filled, hawser filled, usnic filled' ]
}

# refused TEXT: exactly this reason, in hawser_refusal and on stderr, and untouched components.
refused() {
    [ "$status" = 0 ] && [ "$(cat "$log")" = "refusal: $1
components: ofi zero, hawser zero, usnic zero
hawser: not offered to this Open MPI: $1" ]
}

# unconcerned: no refusal, untouched components, nothing said.
unconcerned() {
    [ "$status" = 0 ] && [ "$(cat "$log")" = $'refusal: \ncomponents: ofi zero, hawser zero, usnic zero' ]
}

# stand_in FLAG…: builds the stand-in libraries; SYMBOLS is what libmpi has, PAL the other's name.
stand_in() {
    printf 'SYMBOL(%s)\n' $symbols | sed 's/^SYMBOL(\(.*_class\))/SYMBOL_CLASS(\1)/' >"$work/symbols.h"
    # shellcheck disable=SC2086 # a list of words
    on_host cc -std=gnu11 -O1 -Wall -Wextra -Werror -shared -fPIC -Iinclude $flags -DPAL "$@" \
        -Wl,-soname,$pal -o "$work/$pal" c-tests/selection/host.c >"$log" 2>&1 &&
        on_host cc -std=gnu11 -O1 -Wall -Wextra -Werror -shared -fPIC -Iinclude -I"$work" $flags "$@" \
            -Wl,-soname,libmpi.so.40 -Wl,--no-as-needed -Wl,-rpath,"$root/$work" \
            -o "$work/libmpi.so.40" c-tests/selection/host.c "$work/$pal" >>"$log" 2>&1 ||
        give_up "the stand-in compiles"
}
load_stand_in() { load "$root/$work/$pal" "$root/$work/libmpi.so.40"; }

all=$(sed -nE '/symbols! \{/,/^\}/s/.* = c"([A-Za-z_]+)",$/\1/p' src/host/services.rs src/host/btl/services.rs src/host/$source/mod.rs)
symbols=$all

load
unconcerned
check "a process without Open MPI is left alone" $?
load "$libraries/$pal"
unconcerned
check "a tool of the host without MPI is left alone" $?
load "$libraries/libmpi.so.40"
accepted
check "the real host is accepted" $?

stand_in -DVERSION="\"$version\""
load_stand_in
accepted
check "the complete stand-in is accepted, without a call into it" $?
for text in 3.1.3 4.0.7 5.1.0 6.0.0; do
    stand_in -DVERSION="\"$text\""
    load_stand_in
    refused "it is version ${text%.*}; hawser knows 4.1 and 5.0"
    check "version $text is refused" $?
done
for text in "" five 5 5.0 "${version%%.*}.x.1"; do
    stand_in -DVERSION="\"$text\""
    load_stand_in
    refused "its version text is not understood: $text"
    check "version text \"$text\" is refused" $?
done
stand_in
load_stand_in
refused "the host has no symbol opal_version_string"
check "a host without a version text is refused" $?
for class in opal_object_t opal_convertor_t opal_datatype_t ompi_communicator_t ompi_group_t ompi_proc_t ompi_request_t ompi_message_t; do
    stand_in -DVERSION="\"$version\"" -DOTHER_SIZE=$class
    load_stand_in
    expected=$(sed -nE "s/.*its ${class}_class says ([0-9]+) bytes where hawser expects ([0-9]+).*/\1 \2/p" "$log" | head -n 1)
    [ -n "$expected" ] && [ $((${expected% *} - ${expected#* })) = 16 ] &&
        refused "its ${class}_class says ${expected% *} bytes where hawser expects ${expected#* }: a debug build, or one with other options"
    check "a host whose $class is larger is refused" $?
done
count=$(wc -w <<<"$all")
[ "$count" -ge 15 ]
check "hawser's sources name the symbols of the host ($count)" $?
for missing in $all; do
    symbols=$(grep -vx "$missing" <<<"$all")
    stand_in -DVERSION="\"$version\""
    load_stand_in
    refused "the host has no symbol $missing"
    check "a host without $missing is refused" $?
done

# The real host with another version text, in a job.
rm -f "$work/$pal" "$work/libmpi.so.40"
mkdir -p "$work/altered"
cp "$tree$libraries/$pal" "$work/altered/$pal"
# A constant lies in a segment whose place in the file is its address.
place=$((16#$(nm -D --defined-only "$work/altered/$pal" | sed -n 's/ [A-Z] opal_version_string$//p')))
text() { dd if="$work/altered/$pal" bs=1 skip=$place count=5 status=none; }
[ "$(text)" = "$version" ] || give_up "the host's version text is at $place"
printf %s "$unknown" | dd of="$work/altered/$pal" bs=1 seek=$place conv=notrunc status=none
[ "$(text)" = "$unknown" ] || give_up "the host's version text is altered"
altered=(-x LD_LIBRARY_PATH="$root/$work/altered")

job "${altered[@]}" --mca mtl_${first}_provider_include $own --mca mca_base_component_show_load_errors 1
stands_back && [ "$(grep -c "hawser: not offered to this Open MPI: it is version ${unknown%.*}; hawser knows 4.1 and 5.0" "$log")" -ge 2 ]
check "the real host as version $unknown: the job goes on without hawser, and a line says why" $?
job "${altered[@]}" --mca mtl_${first}_provider_include $own --mca mca_base_component_show_load_errors 0
stands_back && ! says hawser
check "the real host as version $unknown: silent where load errors are not shown" $?
job "${altered[@]}" --mca pml cm --mca mtl hawser --mca mtl_hawser_provider_include $own
[ "$status" != 0 ] && [ "$status" -lt 124 ] && ! says 'Segmentation|Aborted'
check "the real host as version $unknown: a job that insists on hawser ends cleanly" $?

rm -f "$log.err" "$log.raw"
sum
