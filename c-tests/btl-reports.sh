#!/usr/bin/env bash
# What users and administrators see of the usnic BTL on one host: its parameters, performance
# variables, statistics, connectivity maps and help texts.
#
#     c-tests/btl-reports.sh debian12|debian13
#
# debian12 is this machine, debian13 the chroot that tests/hosts/debian13.sh keeps. Needs target/mca
# (`make stage`). Logs lie in target/c-tests/HOST/btl-reports; that of a failed check is shown. The
# last line is `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 2

. c-tests/host.sh

host_use "${1-}" || { echo "usage: $0 debian12|debian13" >&2; exit 2; }
work=target/c-tests/$host/btl-reports
log=$work/log
rm -rf "$work"
mkdir -p "$work/logs" || exit 2

# on_host COMMAND…: runs a command on the host, ended after a minute and a half.
on_host() { c-tests/patience.sh 90 "${there[@]}" "$@"; }

# job WORD…: a job over the usnic BTL; fills the log and `status`.
job() {
    on_host mpirun --oversubscribe --mca mca_base_component_path "$root/target/mca:$stock" "${quiet[@]}" \
        --mca pml ob1 --mca btl usnic,self "$@" >"$log.raw" 2>&1 </dev/null
    status=$?
    # Open MPI 5.0 ends its help texts with a zero byte.
    tr -d '\0' <"$log.raw" >"$log"
}

# tells TEXT: the log has it, wherever its lines break.
tells() { tr -s ' \n' ' ' <"$log" | grep -qF -- "$1"; }
works() { [ "$status" = 0 ] && grep -q "^PASS " "$log"; }

# told works|fails TEXT TEXT WORD…: such a job ends so and says both.
told() {
    local end=$1 first=$2 second=$3
    shift 3
    job "$@"
    if [ "$end" = works ]; then works; else [ "$status" != 0 ] && [ "$status" != 124 ]; fi &&
        tells "$first" && tells "$second"
}

[ -e target/mca/libhawser.so ] || give_up "target/mca is there: make stage"
mpi_compile usnic_pvars spawn sizes closesock
pvars=$root/$work/usnic_pvars

# --- parameters: what ompi_info lists is what the manual's table says

on_host env OMPI_MCA_mca_base_component_path="$root/target/mca:$stock" ompi_info --parsable --param btl usnic --level 9 >"$work/listing" 2>"$log"
value() { sed -n "s/^mca:btl:usnic:param:btl_usnic_$1:value://p" "$work/listing" | tr -d '"'; }
sed -n 's/^mca:btl:usnic:param:btl_usnic_\([a-z_]*\):value:.*/\1/p' "$work/listing" | sort >"$work/listed"
sed -nE 's/^\| `([a-z_]+)` \|.*/\1/p' docs/usnic-parameters.md | sort >"$work/documented"
count=$(wc -l <"$work/listed")
[ "$count" -ge 37 ] && diff "$work/listed" "$work/documented" >"$log" 2>&1
check "docs/usnic-parameters.md has the $count parameters that ompi_info lists" $?
wrong=
while IFS='|' read -r _ name _ default _; do
    name=$(tr -d ' `' <<<"$name") default=$(tr -d ' `' <<<"$default")
    [ "$default" != – ] || default=
    [ "$(value "$name")" = "$default" ] || wrong="$wrong $name"
done < <(grep -E '^\| `' docs/usnic-parameters.md)
echo "$wrong" >"$log"
[ -z "$wrong" ]
check "their defaults are as it says" $?
wrong=
while read -r name; do
    help=$(sed -n "s/^mca:btl:usnic:param:btl_usnic_$name:help://p" "$work/listing")
    [ "${#help}" -gt 15 ] || wrong="$wrong $name"
done <"$work/listed"
echo "$wrong" >"$log"
[ "$count" -gt 0 ] && [ -z "$wrong" ]
check "all have a help text" $?

# What hawser-info lists of every component is what this host has been told.
on_host env OMPI_MCA_mca_base_component_path="$root/target/mca:$stock" ompi_info --parsable --all --level 9 >"$work/all" 2>"$log"
on_host "$root/target/release/hawser-info" --params --json >"$work/params" 2>>"$log"
python3 - "$work/all" "$work/params" "$host" >"$log" 2>&1 <<'PYTHON'
import json, re, sys
told, listed, host = {}, json.load(open(sys.argv[2]))["components"], sys.argv[3]
release = {"debian12": "4.1", "debian13": "5.0"}[host]
line = re.compile(r"mca:(\w+):(\w+):param:(\w+):(value|level|help|type|synonym_of:name):(.*)")
for found in map(line.fullmatch, open(sys.argv[1], errors="replace").read().splitlines()):
    if found:
        told.setdefault("_".join(found.group(1, 2)), {}).setdefault(found[3], {})[found[4]] = found[5].strip('"')
types = {"int": "int", "unsigned": "unsigned_int", "bool": "bool", "text": "string"}
compared = 0
for component in listed:
    whole = component["framework"] + "_" + component["name"]
    # HOST: Debian 13's own is linked into the host.
    if whole == "mtl_ofi":
        continue
    own = {one["name"]: one for one in component["parameters"] if one["only"] in (None, release)}
    have = told.get(whole, {})
    assert set(own) == set(have), (whole, set(own) ^ set(have))
    for name, one in own.items():
        compared += 1
        assert str(one["level"]) == have[name]["level"], (name, one, have[name])
        # Whoever came first has registered what all OFI components share.
        if "synonym_of:name" in have[name]:
            continue
        assert one["help"] == have[name]["help"], (name, one, have[name])
        assert types[one["type"]] == have[name]["type"], (name, one, have[name])
        # The host has names for flags.
        assert name.endswith("_flags") or (one["default"] or "") == have[name]["value"], (name, one, have[name])
assert compared > 75, compared
PYTHON
check "hawser-info --params lists the parameters of all components as this host does" $?

# What is true or false in the original has the host's words for that.
for said in "connectivity_check no false" "connectivity_check enabled true" "show_route_failures f false" "show_route_failures 2 true"; do
    read -r name word value <<<"$said"
    on_host env OMPI_MCA_mca_base_component_path="$root/target/mca:$stock" "OMPI_MCA_btl_usnic_$name=$word" \
        ompi_info --parsable --param btl usnic --level 9 >"$log" 2>&1
    grep -qx "mca:btl:usnic:param:btl_usnic_$name:value:$value" "$log" && grep -qx "mca:btl:usnic:param:btl_usnic_$name:type:bool" "$log"
    check "btl_usnic_$name may be $word" $?
done

# --- performance variables

job -n 2 --mca btl_usnic_if_include lo "$pvars" 0 lo
works
check "the original's 25 performance variables are there, and they count" $?
job -n 2 "$pvars"
works
check "with one value for each module" $?
job -n 2 --mca btl_usnic_if_include lo --mca btl_usnic_stats_relative 1 "$pvars" 0 lo
works
check "relative statistics do not take them away" $?

# --- statistics

# lines NUMBER RANK: lines of this number for this rank's loopback interface.
lines() { grep -cE "^hawser: btl_usnic statistics $1: rank $2 of job [0-9]+, lo: num_total_sends=[0-9]+ num_resends=.* pml_send_callbacks=.* peers=[0-9]+ send_unacked_min=[0-9]+ send_unacked_max=[0-9]+ recv_depth_min=[0-9]+ recv_depth_max=[0-9]+\$" "$log"; }
job -n 2 --mca btl_usnic_if_include lo --mca btl_usnic_stats 1 "$pvars" 2.5
works && [ "$(lines 1 0) $(lines 1 1) $(lines final 0) $(lines final 1)" = "1 1 1 1" ]
check "with stats 1 there is a line for each module and second, and a final one" $?
sends() { sed -nE "s/^hawser: btl_usnic statistics $1: rank 0 .* num_frag_sends=([0-9]+) .*/\1/p" "$log"; }
[ "$(sends 1)" -gt 0 ] && [ "$(sends final)" -ge "$(sends 1)" ]
check "they count from the beginning" $?
# chunks: those of rank 0 in all lines together.
chunks() { sed -nE "s/^hawser: btl_usnic statistics [^:]*: rank 0 .* num_chunk_sends=([0-9]+) .*/\1/p" "$log" | awk '{ n += $1 } END { print n + 0 }'; }
total=$(sed -nE "s/^hawser: btl_usnic statistics final: rank 0 .* num_chunk_sends=([0-9]+) .*/\1/p" "$log")
[ "$total" -gt 0 ] && [ "$(chunks)" -gt "$total" ]
check "so that all lines together count more than once what is sent at the beginning" $?
job -n 2 --mca btl_usnic_if_include lo --mca btl_usnic_stats 1 --mca btl_usnic_stats_relative 1 "$pvars" 2.5
works && [ "$(lines 1 0) $(lines final 0)" = "1 1" ] && [ "$(sends 2)" -gt 0 ] && [ "$(chunks)" = "$total" ]
check "with stats_relative 1, from the line before: together they count everything once" $?
job -n 2 "$pvars"
works && ! grep -q statistics "$log"
check "without stats there are none" $?

# --- connectivity maps

node=$("${there[@]}" uname -n)
mkdir -p "$work/maps"
map=$root/$work/maps/map
job -n 3 --mca btl_usnic_if_include lo --mca btl_usnic_connectivity_map "$map" "$pvars"
works && [ "$(find "$work/maps" -type f | wc -l)" = 3 ]
check "each process writes a connectivity map" $?
wrong=
for rank in 0 1 2; do
    files=("$work/maps/map-$node".pid*.job*.mcwrank$rank.txt)
    {
        echo "# Devices possibly used by this process:"
        echo "device=lo,ip=127.0.0.1/8,mss=65507"
        echo "# Endpoints used to communicate to each peer MPI process:"
        for peer in 0 1 2; do
            [ $peer = $rank ] || echo "peer=$peer,hostname=$node,device=lo@peer_ip=127.0.0.1/8"
        done
    } >"$work/expected"
    grep -qE "/map-$node\.pid[0-9]+\.job[0-9]+\.mcwrank$rank\.txt\$" <<<"${files[0]}" &&
        diff "$work/expected" "${files[0]}" >"$log" 2>&1 || wrong="$wrong $rank"
done
[ -z "$wrong" ]
check "with the device, its address and every peer in it" $?

rm -f "$work/maps"/*
job -n 2 --mca btl_usnic_if_include ::1/128 --mca btl_usnic_connectivity_map "$map" "$pvars"
works && grep -qx "device=lo,ip=::1/128,mss=65487" "$work/maps/map-$node".pid*.job*.mcwrank0.txt &&
    grep -qx "peer=1,hostname=$node,device=lo@peer_ip=::1/128" "$work/maps/map-$node".pid*.job*.mcwrank0.txt
check "over IPv6 too" $?

rm -f "$work/maps"/*
job -n 2 --mca btl_usnic_if_include lo --mca btl_usnic_connectivity_map "$map" "$root/$work/spawn"
works
check "spawned processes meet while maps are written" $?
# Rank 0 of the parents knows the other parent, and children whose ranks begin at 0 again.
parents=$(find "$work/maps" -type f -exec grep -l '^peer=1,' {} + | xargs grep -l '^peer=0,' | wc -l)
find "$work/maps" -type f -exec cat {} + >"$log"
[ "$(find "$work/maps" -type f | wc -l)" -ge 4 ] && [ "$parents" -ge 2 ]
check "processes that meet later come into the map" $?

told works "the connectivity map $root/$work/nonsuch/map-$node" "the folder must be there" \
    -n 2 --mca btl_usnic_connectivity_map "$root/$work/nonsuch/map" "$pvars"
check "a map that cannot be written is spoken of, and the job goes on" $?

# --- help texts

told fails "btl_usnic_if_include names nonsuch0, but there is no such interface here" "are lists of network interfaces" \
    -n 2 --mca btl_usnic_if_include nonsuch0 "$pvars"
check "a list with an unknown interface" $?
told fails "btl_usnic_if_exclude leaves no network interface that is up" "are lists of network interfaces" \
    -n 2 --mca btl_usnic_if_exclude 0.0.0.0/0,::/0 "$pvars"
check "a list that leaves nothing" $?
# The first socket gets the last port there is, the second none.
told fails "no socket can be opened on lo (127.0.0.1/8): Address already in use" "how many sockets and files" \
    -n 1 --mca btl_usnic_if_include lo --mca btl_usnic_base_udp_port 65535 "$pvars"
check "no socket left" $?
told fails "every UDP port from 65535 on is taken" "give btl_usnic_base_udp_port a lower one, or 0 for any" \
    -n 1 --mca btl_usnic_if_include lo --mca btl_usnic_base_udp_port 65535 "$pvars"
check "and which parameter gives more ports" $?
told works "btl_usnic_if_exclude names nonsuch0, but no interface of this name has an address here" "The job goes on with all interfaces" \
    -n 2 --mca btl_usnic_if_exclude nonsuch0 "$pvars"
check "a name that leaves nothing out" $?
told fails "libfabric has no datagram endpoints" "With \`--mca btl_usnic_link socket\` libfabric is not needed" \
    -n 2 -x FI_PROVIDER=shm --mca btl_usnic_link libfabric "$pvars"
check "libfabric without datagrams" $?
# Debian 13's mpirun crashes when ranks are given different programs with `:`.
# shellcheck disable=SC2016 # expanded there
told fails "has no link of the same kind and version (btl_usnic_link)" "All processes of a job need the same" \
    -n 2 sh -c '[ "$OMPI_COMM_WORLD_RANK" = 0 ] || export OMPI_MCA_btl_usnic_link=libfabric; exec "$1"' sh "$pvars"
check "processes with different links" $?
told fails "btl_usnic_rd_num is 1; it must be 2 to 1048576" "The usnic byte transport is therefore not used" \
    -n 2 --mca btl_usnic_rd_num 1 "$pvars"
check "a parameter out of range" $?
told fails "btl_usnic_bandwidth is 4294967295; it must be 0 to 2147483647" "The usnic byte transport is therefore not used" \
    -n 2 --mca btl_usnic_bandwidth 4294967295 "$pvars"
check "an unsigned parameter out of range is said as it was given" $?
told fails "btl_usnic_flags is 6, without send (1): no message could leave" "The usnic byte transport is therefore not used" \
    -n 2 --mca btl_usnic_flags 6 "$pvars"
check "flags without send" $?
told fails "btl_usnic_max_send_size is 1; it must be 1024 to 524288, or 0: as eager_limit" "The usnic byte transport is therefore not used" \
    -n 2 --mca btl_usnic_max_send_size 1 "$pvars"
check "a fragment shorter than its headers" $?
# shellcheck disable=SC2016 # expanded there
told works "/proc/self/fd is not there: is /proc hidden, or not mounted?" "/proc must be there" \
    -n 2 unshare --mount --propagation unchanged sh -c '{ mount --make-rprivate / 2>/dev/null || mount --make-private /proc; } && mount -t tmpfs -o ro none /proc && exec "$@"' sh "$pvars"
check "/proc is hidden: the job goes on without an agent, and hears why" $?
# shellcheck disable=SC2016 # expanded there
told works "Too many open files" "raise the limit" -n 2 sh -c 'ulimit -n 28; exec "$@"' sh "$pvars"
check "few descriptors may be open: the job goes on without an agent, and hears of the limit" $?
for how in close replace; do
    told fails "something else in this process has closed the sockets of" "only descriptors that it has opened" \
        -n 2 "$root/$work/closesock" $how
    check "the program closes the sockets ($how): the job ends, and says why" $?
done

# --- libfabric is not loaded, nor its providers, only to learn that there is no such device

# loads: whether libfabric has said that it begins.
loads() { tells "libfabric:"; }
if [ ! -e /sys/class/infiniband_verbs ]; then
    job -n 2 -x FI_LOG_LEVEL=info --mca btl_usnic_link libfabric --mca btl_usnic_if_include lo "$pvars"
    loads
    check "libfabric is heard of where it carries the datagrams" $?
    job -n 2 -x FI_LOG_LEVEL=info "$pvars"
    works && ! loads
    check "libfabric is not asked without a usNIC device" $?
    on_host mpirun --oversubscribe -n 2 --mca mca_base_component_path "$root/target/mca:$stock" "${quiet[@]}" \
        --mca pml ob1 --mca btl ^openib,uct,ofi -x FI_LOG_LEVEL=info "$root/$work/sizes" 1000 >"$log" 2>&1 </dev/null
    status=$?
    works && ! loads
    check "nor where nobody asked for usnic" $?
fi

# --- parameters that have an effect

job -n 2 --mca btl_usnic_if_include lo --mca btl_usnic_sd_num 2 --mca btl_usnic_rd_num 8 --mca btl_usnic_prio_rd_num 16 --mca btl_usnic_prio_sd_num 4 --mca btl_usnic_cq_num 9 "$pvars"
works && ! grep -q hawser "$log"
check "few descriptors are enough for a socket, without a word" $?
job -n 2 --mca btl_usnic_if_include lo --mca btl_usnic_link libfabric --mca btl_usnic_sd_num 2 --mca btl_usnic_rd_num 8 --mca btl_usnic_prio_rd_num 16 --mca btl_usnic_prio_sd_num 4 --mca btl_usnic_cq_num 9 "$pvars"
works && ! grep -q hawser "$log"
check "and for libfabric, without a word" $?
# Without PUT and GET, long messages go in fragments.
gets() { sed -nE "s/^hawser: btl_usnic statistics final: rank 0 .* num_gets=([0-9]+) .*/\1/p" "$log"; }
job -n 2 --mca btl_usnic_if_include lo --mca btl_usnic_eager_limit 30000 --mca btl_usnic_stats 60 "$root/$work/sizes" 200000
works && [ -n "$(gets)" ]
check "long messages are fetched with GET" $?
job -n 2 --mca btl_usnic_if_include lo --mca btl_usnic_eager_limit 30000 --mca btl_usnic_stats 60 --mca btl_usnic_flags send,inplace --mca btl_usnic_max_send_size 20000 "$root/$work/sizes" 200000
works && [ -z "$(gets)" ] && ! grep -q ' num_puts=' "$log"
check "with btl_usnic_flags send,inplace they are sent" $?

sum
