#!/usr/bin/env bash
# The second host: Debian 13's Open MPI 5.0 and libfabric 2.1 in a folder, beside this machine's own.
#
#     tests/hosts/debian13.sh make            makes target/hosts/debian13 (once; kept)
#     tests/hosts/debian13.sh run -- CMD …    runs a command there, with the repository at /hawser
#     tests/hosts/debian13.sh able            says in one line why this machine cannot, if it cannot
#     tests/hosts/debian13.sh clean           removes it
#
# Needs root (chroot and private mounts) and debootstrap. Nothing stays mounted: the mounts live in
# a mount namespace of the command's own.
set -euo pipefail

repository=$(cd "$(dirname "$0")/../.." && pwd -P)
tree=${HAWSER_CHROOT:-$repository/target/hosts/debian13}
packages="openmpi-bin libopenmpi-dev libfabric-dev libfabric-bin gcc libc6-dev make python3 python3-dev python3-venv procps valgrind"
stamp=$tree/.hawser-complete

say() { printf 'second host: %s\n' "$*"; }

able() {
    [ "$(id -u)" = 0 ] || { say "cannot be made here: it needs root for chroot and mounts"; return 1; }
    unshare -m true 2>/dev/null || { say "cannot be made here: private mounts are not allowed"; return 1; }
    command -v debootstrap >/dev/null || { say "cannot be made here: debootstrap is missing (make setup installs it)"; return 1; }
}

# The mirror that this machine itself uses, in either form that apt reads.
mirror() {
    {
        sed -n 's/^URIs:[[:space:]]*//p' /etc/apt/sources.list.d/*.sources 2>/dev/null
        sed -n 's/^deb[[:space:]]\(\[[^]]*\][[:space:]]*\)\{0,1\}\([^[:space:]]*\).*/\2/p' /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null
    } | tr ' ' '\n' | grep -v -e security -e '^$' | head -n 1
}

build() {
    able
    if [ "$(cat "$stamp" 2>/dev/null)" = "$packages" ]; then
        say "is there ($tree)"
        return
    fi
    rm -rf --one-file-system "$tree"
    mkdir -p "$tree"
    log=$tree.log
    say "1/3 unpacking the base system (log: $log)"
    debootstrap --variant=minbase --include=ca-certificates trixie "$tree" "$(mirror)" >"$log" 2>&1 || { tail -n 20 "$log"; exit 1; }
    for file in /etc/apt/apt.conf.d/*; do
        case $file in *docker*) ;; *) cp -n "$file" "$tree/etc/apt/apt.conf.d/" ;; esac
    done
    cp -L /etc/resolv.conf "$tree/etc/resolv.conf"
    say "2/3 reading the package lists"
    chroot "$tree" apt-get update >>"$log" 2>&1 || { tail -n 20 "$log"; exit 1; }
    say "3/3 installing $packages"
    # shellcheck disable=SC2086 # a list of words
    chroot "$tree" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $packages >>"$log" 2>&1 || { tail -n 20 "$log"; exit 1; }
    printf '%s\n' "$packages" >"$stamp"
    say "ready: $(chroot "$tree" ompi_info --version 2>/dev/null | sed -n "s/^Open MPI v/Open MPI /p"), libfabric $(chroot "$tree" fi_info --version | sed -n 's/^libfabric: //p')"
}

run() {
    [ -e "$stamp" ] || { say "is not there; make it with: tests/hosts/debian13.sh make" >&2; exit 1; }
    mkdir -p "$tree/hawser"
    # What a test may set from outside; everything else is the tree's own.
    keep=()
    while IFS='=' read -r -d '' name value; do
        case $name in HAWSER_CHROOT) ;; HAWSER_* | OMPI_* | PMIX_* | PRTE_* | FI_* | CI) keep+=("$name=$value") ;; esac
    done < <(env -0)
    export tree repository
    exec unshare -m --propagation private bash -c '
        set -e
        for folder in proc sys dev; do mount --rbind "/$folder" "$tree/$folder"; done
        mount --bind "$repository" "$tree/hawser"
        exec chroot "$tree" env -i "$@"
    ' run "${keep[@]}" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        sh -c 'cd /hawser && exec "$@"' sh "${command[@]}"
}

case ${1:-} in
make) build ;;
able) able ;;
run)
    [ "${2:-}" = -- ] || { echo "usage: $0 run -- COMMAND …" >&2; exit 2; }
    command=("${@:3}")
    run
    ;;
clean) rm -rf --one-file-system "$tree" "$tree.log" ;;
*) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0"; exit 2 ;;
esac
