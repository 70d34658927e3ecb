# Sourced by the scripts beside it: which host this is, and how a job there loads hawser or the
# host's own ("stock") OFI MTL. Expects $root, the root of the repository.

. "$root/c-tests/host.sh"
set -euo pipefail

host=$(. /etc/os-release && echo "$ID${VERSION_ID:-}")
mca=$root/target/mca
results=$root/target/bench/$host
mkdir -p "$results"

die() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

# Where the host's Open MPI looks for components unless told otherwise, as far as it exists: PMIx
# complains of directories that do not.
stock_path() {
    local directory path=
    while IFS= read -r -d : directory; do
        [ ! -d "$directory" ] || path=${path:+$path:}$directory
    done < <(ompi_info --parsable --all | sed -n \
        's/^mca:mca:base:param:mca_base_component_path:value:"\{0,1\}\([^"]*\)"\{0,1\}$/\1:/p')
    echo "$path"
}

# The major version of the host's Open MPI: 4 has the MTL as a component file that ours, first on
# the path, replaces; 5 has it in libmpi, so that ours goes by its second name.
major=$(mpirun --version | sed -n '1s/.* \([0-9]*\)\..*/\1/p')

# mca_parameters VARIANT PROVIDER: sets `parameters` to the MCA parameters, names and values in
# turn, with which PROVIDER is driven by VARIANT, hawser or stock.
mca_parameters() {
    local mtl=ofi
    parameters=(pml cm)
    if [ "$1" = hawser ]; then
        [ -e "$mca/mca_mtl_ofi.so" ] || die "$mca has no mca_mtl_ofi.so: run make first"
        [ "$major" -lt 5 ] || mtl=hawser
        parameters+=(mca_base_component_path "$mca:$(stock_path)")
    fi
    parameters+=(mtl "$mtl" "mtl_${mtl}_provider_include" "$2" btl_tcp_if_include lo)
}

# Open MPI 5's PMIx reads the component path too, and would complain that ours are not its own.
pmix_quiet=mca_base_component_show_load_errors

# mpirun_command VARIANT PROVIDER RANKS: sets `command` to the mpirun line, up to the program.
# Ranks poll without yielding, a core each where there are enough.
mpirun_command() {
    local i cores yield=0 bind=core
    cores=$(nproc)
    [ "$cores" -ge "$3" ] || { yield=1; bind=none; }
    mca_parameters "$1" "$2"
    command=(mpirun -n "$3" --oversubscribe --bind-to "$bind")
    for ((i = 0; i < ${#parameters[@]}; i += 2)); do
        command+=(--mca "${parameters[i]}" "${parameters[i + 1]}")
    done
    command+=(--mca mpi_yield_when_idle "$yield")
    [ "$major" -lt 5 ] || command+=(--pmixmca "$pmix_quiet" none)
}

# singleton_environment VARIANT PROVIDER: sets `environment` for a job of one rank without mpirun.
singleton_environment() {
    local i
    mca_parameters "$1" "$2"
    environment=()
    for ((i = 0; i < ${#parameters[@]}; i += 2)); do
        environment+=("OMPI_MCA_${parameters[i]}=${parameters[i + 1]}")
    done
    [ "$major" -lt 5 ] || environment+=("PMIX_MCA_$pmix_quiet=none")
}

# The provider whose endpoints take tagged messages over TCP without the help of ofi_rxm;
# libfabric 2 merged net into tcp.
case $host in
debian12) own_provider=net ;;
*) own_provider=tcp ;;
esac

# compile PROGRAM: builds bench/PROGRAM.c against the host's Open MPI, into $results.
compile() {
    mpicc -O2 -Wall -Wextra -o "$results/$1" "$root/bench/$1.c"
}

# known_host NAME: whether NAME can be entered from here.
known_host() {
    [ "$1" = "$host" ] || { [ "$1" = debian13 ] && "$root/tests/hosts/debian13.sh" path >/dev/null; }
}

# hosts_of CHOICE: the hosts that --host CHOICE names; "all" is every host there is.
hosts_of() {
    if [ "$1" = all ]; then
        echo "$host"
        [ "$host" = debian13 ] || ! known_host debian13 || echo debian13
    else
        known_host "$1" || die "no host $1 here; see tests/hosts"
        echo "$1"
    fi
}

# on_host NAME COMMAND...: runs COMMAND, relative to the repository, on the host NAME.
on_host() {
    local name=$1
    shift
    if [ "$name" = "$host" ]; then
        (cd "$root" && "$@")
    else
        "$root/tests/hosts/$name.sh" run -- "$@"
    fi
}
