#!/usr/bin/env bash
# Where jobs really run: launched by Slurm, by mpirun on other nodes, in containers of ordinary users, under a
# debugger, and where there is no IPv4. Each works, or one line says what to allow.
#
#     c-tests/where.sh debian12|debian13 [WORD …]
#
# The hosts are three machines of tests/hosts/cluster.sh in a network bed (c-tests/net/bed.sh). Needs target/mca
# (`make stage`). With words, only the runs whose line holds all of them. Each program checks itself, has a
# watchdog, and must say `PASS`. The last line is `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 2

. c-tests/host.sh
. c-tests/net/bed.sh
. c-tests/where/slurm.sh

host_use "${1-}" || { echo "usage: $0 debian12|debian13 [WORD …]" >&2; exit 2; }
bed_able || give_up "there can be a network here"
bed_enter "$@"
words=("${@:2}") root=/hawser
work=target/c-tests/$host/where
mkdir -p "$work/logs" || exit 2
[ -e target/mca/libhawser.so ] || give_up "target/mca is there: make stage"
mpi_compile p2p alltoall mixed killed || { sum; exit 1; }
log=$work/logs/cc-sandbox
"${there[@]}" cc -std=gnu11 -O1 -Wall -Wextra -Wpedantic -Werror c-tests/where/sandbox.c -o "$work/sandbox" >"$log" 2>&1 ||
    give_up "sandbox compiles"
bed_make "cluster-$host" 3 || give_up "the machines are there"
# Where ours are, for whoever launches; a launcher other than mpirun knows the environment only.
export OMPI_MCA_mca_base_component_path=$root/target/mca:$stock
# PMIx reads the component path too, and would complain that ours are not its own.
export PMIX_MCA_mca_base_component_show_load_errors=none
export CHECK_WATCHDOG=100

# The ways to choose a transport.
matching=(OMPI_MCA_pml=cm OMPI_MCA_mtl=hawser "OMPI_MCA_mtl_hawser_provider_include=tcp;ofi_rxm" "OMPI_MCA_btl=^usnic,smcuda")
datagrams=(OMPI_MCA_pml=ob1 OMPI_MCA_btl=usnic,self)
memory=(OMPI_MCA_pml=ob1 OMPI_MCA_btl=smcuda,self)
both=(OMPI_MCA_pml=ob1 OMPI_MCA_btl=smcuda,usnic,self)

# begin LINE: whether it is wanted; then its log is `log`.
begin() {
    line=$1 since=$SECONDS
    wanted "$line" || return 1
    log=$work/logs/$(tr -c 'a-z0-9\n' - <<<"$line")
}

# on_first COMMAND…: on the first host, with patience; fills `log` and `status`.
on_first() {
    bed_on 1 "$root/c-tests/patience.sh" 150 "$@" >"$log.raw" 2>&1 </dev/null
    status=$?
    tr -d '\0' <"$log.raw" >"$log"
    rm -f "$log.raw"
}

# passes PROGRAM [PATTERN]: the job that has just run ended well, and its log has that line.
passes() {
    [ "$status" = 0 ] && says "^PASS $1\$" && { [ -z "${2-}" ] || says "$2"; }
    check "$line ($((SECONDS - since)) s)" $?
}

program() { echo "$root/$work/$1"; }

# --- Slurm: no mpirun, and nobody to hear --mca

slurm= families=EnableIPv4
# by_slurm LINE "PROGRAM ARGUMENT…" PATTERN NODES RANKS VARIABLE=VALUE…: Slurm is started by the first one.
by_slurm() {
    local -a command
    read -ra command <<<"$2"
    begin "srun --mpi=pmix, $4 nodes, $5 ranks, $1: $2" || return 0
    [ -n "$slurm" ] || slurm_start 3 "$families" || give_up "Slurm is there"
    slurm=yes
    on_first env OMPI_MCA_btl_base_verbose=1 "${@:6}" srun --mpi=pmix -N "$4" -n "$5" "$(program "${command[0]}")" "${command[@]:1}"
    passes "${command[0]}" "$3"
}
by_slurm "usnic" "alltoall 5" "Using usnic btl" 3 6 "${datagrams[@]}" OMPI_MCA_btl_usnic_if_include=e0
by_slurm "smcuda" "mixed" "Using smcuda btl" 1 4 "${memory[@]}"
by_slurm "smcuda and usnic" "alltoall 5" "Using smcuda btl" 2 4 "${both[@]}" OMPI_MCA_btl_usnic_if_include=e0
by_slurm "MTL" "alltoall 5" "" 3 6 "${matching[@]}" FI_TCP_IFACE=e0

# --- mpirun to other nodes; c-tests/net.sh is about the networks between them

if begin "mpirun, 3 nodes, 6 ranks, smcuda and usnic: alltoall 5"; then
    on_first env "${both[@]}" OMPI_MCA_btl_base_verbose=1 mpirun --host node1:2,node2:2,node3:2 -n 6 -x CHECK_WATCHDOG \
        "${quiet[@]}" --mca btl_usnic_if_include e0 "$(program alltoall)" 5
    passes alltoall "Using smcuda btl"
fi

# --- containers of ordinary users

# What a bed tells mpirun about its nodes is not for jobs of one machine.
alone=(env -u OMPI_MCA_orte_default_hostfile -u PRTE_MCA_prte_default_hostfile -u OMPI_MCA_oob_tcp_if_include
    -u PRTE_MCA_prte_if_include -u OMPI_MCA_plm_rsh_agent -u PRTE_MCA_plm_ssh_agent HOME=/tmp OMPI_MCA_btl_base_verbose=1)
user=(setpriv --reuid 1000 --regid 1000 --clear-groups)
launch=(mpirun --oversubscribe -n 2 "${quiet[@]}")

# inside PROFILE LINE "PROGRAM ARGUMENT…" PATTERN VARIABLE=VALUE…: mpirun and its ranks in one container.
inside() {
    local -a command
    read -ra command <<<"$3"
    begin "in one container ($1), $2: $3" || return 0
    on_first "${alone[@]}" "${@:5}" "${user[@]}" "$root/c-tests/where/container.sh" "$1" "$(program sandbox)" \
        "${launch[@]}" "$(program "${command[0]}")" "${command[@]:1}"
    passes "${command[0]}" "$4"
}
for profile in usual strict; do
    inside $profile "MTL" p2p "" "${matching[@]}"
    inside $profile "usnic" p2p "Using usnic btl" "${datagrams[@]}"
done
inside usual "smcuda" p2p "Using smcuda btl" "${memory[@]}"
inside strict "smcuda and usnic" p2p "no memory to share .*memfd_create" "${both[@]}"
if begin "in one container (strict): hawser-info --doctor says what to allow"; then
    on_first "${alone[@]}" "${user[@]}" "$root/c-tests/where/container.sh" strict "$(program sandbox)" \
        "$root/target/release/hawser-info" --doctor
    says '^bad   shared memory: cannot be made' && says '-> allow memfd_create'
    check "$line" $?
fi

# between LINE "PROGRAM ARGUMENT…" PATTERN VARIABLE=VALUE…: each rank in a container of its own, which shares the
# launcher's /tmp.
between() {
    local -a command
    read -ra command <<<"$2"
    begin "in two containers, $1: $2" || return 0
    # shellcheck disable=SC2016 # expanded there
    on_first "${alone[@]}" "${@:4}" WHERE_SHARED=yes "${user[@]}" "${launch[@]}" \
        "$root/c-tests/where/container.sh" usual "$(program sandbox)" "$(program "${command[0]}")" "${command[@]:1}"
    passes "${command[0]}" "$3"
}
between "MTL" p2p "" "${matching[@]}"
between "usnic" p2p "Using usnic btl" "${datagrams[@]}"
between "smcuda and usnic" p2p "is not reached: it is in another PID namespace" "${both[@]}"

# --- under a debugger

# rank_of PROGRAM RANK: its process; nothing if there is none.
rank_of() {
    local entry
    for entry in /proc/[0-9]*; do
        case $(readlink "$entry/exe" 2>/dev/null) in */"$1") ;; *) continue ;; esac
        ! tr '\0' '\n' <"$entry/environ" 2>/dev/null | grep -qx "OMPI_COMM_WORLD_RANK=$2" || echo "${entry#/proc/}"
    done
}

# debug PID COMMAND…: gdb does that to a process, and lets it go on.
debug() {
    local pid=$1 word words=()
    shift
    for word in "$@"; do words+=(-ex "$word"); done
    bed_on 1 "$root/c-tests/patience.sh" 60 gdb -nx -batch -p "$pid" "${words[@]}" 2>>"$log.gdb" </dev/null
}

# stopped LINE VARIABLE=VALUE…: a rank that a debugger holds in the middle of a job, twice, is waited for.
stopped() {
    local job pid= round=0 held=0 end
    begin "a debugger holds a rank for ten seconds, $1: alltoall" || return 0
    end=/dev/shm/end
    : >"$log.gdb"
    bed_on 1 rm -f $end
    on_first "${alone[@]}" "${@:2}" "${launch[@]}" "$(program alltoall)" $end 65536 &
    job=$!
    # As soon as it has sent and received something.
    while kill -0 $job 2>/dev/null && [ "$round" -lt 3 ]; do
        pid=$(rank_of alltoall 1)
        [ -z "$pid" ] || round=$(debug "$pid" 'print *(int *)&round_number' | sed -n 's/^\$1 = //p')
        round=${round:-0}
    done
    for held in 1 2; do debug "$pid" 'shell sleep 10' 'print *(int *)&round_number' >>"$log.gdb"; done
    bed_on 1 touch $end
    wait $job
    status=1
    [ ! -e "$log" ] || ! says "^PASS alltoall$" || status=0
    [ "$status" = 0 ] && ! says 'lost|error' && [ "$(grep -c '^\$1 = [1-9]' "$log.gdb")" = 2 ]
    check "$line ($((SECONDS - since)) s, held in rounds $(sed -n 's/^\$1 = //p' "$log.gdb" | paste -sd ' '))" $?
}
stopped "MTL" "${matching[@]}"
stopped "usnic" "${datagrams[@]}"
stopped "smcuda" "${memory[@]}"

# --- docs/administrators.md: what it says is done, on a machine whose folders are put back

# block MARK: the lines below `<!-- MARK -->` that are meant for a shell or a file.
block() {
    awk -v mark="<!-- $1 -->" '$0 == mark { on = 1; next }
        on && /^    / { print substr($0, 5); seen = 1; next }
        on && seen { exit }' docs/administrators.md
}

# as_root COMMANDS: of the page, on the second machine, where the launcher's words of the bed do not hold.
as_root() { bed_on 2 env -u OMPI_MCA_mca_base_component_path sh -ec "$1" >>"$log" 2>&1 </dev/null; }

# by_user COMMANDS: a job of two ranks after these, as an ordinary user runs it there; what it says is in `log`.
by_user() {
    bed_on 2 "$root/c-tests/patience.sh" 60 env -u OMPI_MCA_mca_base_component_path \
        -u PMIX_MCA_mca_base_component_show_load_errors "${alone[@]}" "${user[@]}" \
        bash -c "$1
            mpirun --oversubscribe -n 2 $(program p2p) small" >"$log" 2>&1 </dev/null
    status=$?
    tr -d '\0' <"$log" >"$log.told" && mv "$log.told" "$log"
}

# is_used|is_not_used: by the job that has just run.
is_used() { [ "$status" = 0 ] && says '^PASS p2p$' && says 'Using smcuda btl'; }
is_not_used() { [ "$status" = 0 ] && says '^PASS p2p$' && ! says 'Using smcuda btl'; }

if wanted "the administrators' page"; then
    log=$work/logs/folders
    : >"$log"
    as_root "for folder in /usr/local /etc/openmpi /opt $stock; do
            mkdir -p /dev/shm/folders\$folder && cp -a \$folder/. /dev/shm/folders\$folder/ && mount --bind /dev/shm/folders\$folder \$folder
        done" || give_up "a machine can be changed and put back"
    begin "the administrators' page: installed for all, hawser-info finds nothing bad"
    : >"$log"
    as_root "$(block run)" && ! says '^bad' && [ "$(grep -Ec '^good  btl (usnic|smcuda)' "$log")" = 2 ]
    check "$line" $?
    begin "the administrators' page: installed, and nobody asks for it"
    by_user ""
    is_not_used
    check "$line" $?
    begin "the administrators' page: switched on for all"
    : >"$log"
    as_root "$(block "run on")" && by_user "" && is_used
    check "$line" $?
    begin "the administrators' page: switched off again"
    : >"$log"
    as_root "$(block "run off")" && by_user "" && is_not_used
    check "$line" $?
    begin "the administrators' page: removed, and nothing stays"
    : >"$log"
    as_root "$(block "run gone")
        test -z \"\$(find /usr/local $stock /etc/openmpi -name '*hawser*' -o -name 'mca_btl_usnic*')\"" && by_user "" && is_not_used
    check "$line" $?
    module=$(block module)
    as_root "PREFIX=/opt/hawser COMPONENTDIR=/opt/hawser/components pkgconfig/install.sh install
        mkdir /opt/modules
        echo '${module/@components@/$stock}' >/opt/modules/hawser"
    modules='. /etc/profile.d/modules.sh; module use /opt/modules; module load hawser;'
    begin "the administrators' page: an environment module"
    by_user "$modules"
    is_used && ! says 'bad prefix'
    check "$line" $?
    begin "the administrators' page: the module is unloaded"
    by_user "$modules module unload hawser"
    is_not_used && ! says ERROR
    check "$line" $?
fi

# --- no IPv4, but for the loopback

bed_sweep
slurm= families=EnableIPv6,DisableIPv4
for ((node = 1; node <= 3; node++)); do
    for device in m0 e0; do bed_ip $node -4 addr flush dev $device; done
    bed_ip $node addr add "fd78::$node/64" dev m0 nodad
    # What is mounted there is written to, not replaced.
    # shellcheck disable=SC2016 # expanded there
    bed_on $node sh -c 'text=$(sed -e "s/127.0.0.1/::1/" -e "s/10\.78\.0\./fd78::/" /etc/hosts) && echo "$text" >/etc/hosts'
done
by_slurm "IPv6 only, usnic" "alltoall 5" "Using usnic btl" 3 6 "${datagrams[@]}" OMPI_MCA_btl_usnic_if_include=e0
by_slurm "IPv6 only, MTL" "alltoall 5" "" 3 6 "${matching[@]}" FI_TCP_IFACE=e0

# doctor LINE PATTERN: what hawser-info says on the first node.
doctor() {
    begin "IPv6 only: hawser-info --doctor says $1" || return 0
    on_first "$root/target/release/hawser-info" --doctor
    says "$2"
    check "$line" $?
}
doctor "what mpirun wants" '^note  launching: no interface but the loopback has an IPv4 address'

# PRRTE 3.0.8 crashes without an address of such a device (pmix_ifgetaliases finds none, and nobody looks).
[ "$host" = debian12 ] || for ((node = 1; node <= 3; node++)); do bed_ip $node addr add 192.0.2.1/32 dev m0; done
# by_mpirun LINE "PROGRAM ARGUMENT…" PATTERN HOSTS RANKS VARIABLE=VALUE…
by_mpirun() {
    local -a command
    read -ra command <<<"$2"
    begin "IPv6 only, mpirun, $4, $5 ranks, $1: $2" || return 0
    on_first env OMPI_MCA_btl_base_verbose=1 "${@:6}" mpirun --host "$4" -n "$5" -x CHECK_WATCHDOG -x FI_TCP_IFACE "${quiet[@]}" \
        "$(program "${command[0]}")" "${command[@]:1}"
    passes "${command[0]}" "$3"
}
by_mpirun "usnic" "alltoall 5" "Using usnic btl" node1:1,node2:1,node3:1 3 "${datagrams[@]}" OMPI_MCA_btl_usnic_if_include=e0
by_mpirun "smcuda and usnic" "alltoall 5" "Using smcuda btl" node1:2,node2:2 4 "${both[@]}" OMPI_MCA_btl_usnic_if_include=e0
by_mpirun "usnic" "alltoall 5" "Using usnic btl" node1:2 2 "${datagrams[@]}"
by_mpirun "MTL" "alltoall 5" "" node1:1,node2:1,node3:1 3 "${matching[@]}" FI_TCP_IFACE=e0

# Without one for the loopback the host itself does not start: nobody's transport is asked.
for ((node = 1; node <= 3; node++)); do
    for device in lo m0; do bed_ip $node -4 addr flush dev $device; done
done
doctor "what PMIx wants" '^bad   launching: no interface has an IPv4 address: PMIx'
if begin "IPv6 only, not even 127.0.0.1: the host says that it cannot start"; then
    on_first env "${memory[@]}" mpirun --host node1:2 -n 2 "$(program p2p)"
    [ "$status" != 0 ] && [ "$status" != 124 ] && says "PMIx server's listener thread failed to start"
    check "$line" $?
fi

sum
