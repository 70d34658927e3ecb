#!/usr/bin/env bash
# libfabric's own tests over the provider `gni`: fabtests of the release that the host has, in the sets of their script, each
# test by name beside what `fabtests.txt` says of it. One that is not run must be there, with the reason.
#
#     c-tests/gni/fabtests.sh debian12|debian13 [--source FOLDER] [SET …]
#
# SET is of runfabtests.sh: quick, standard, unit, functional, short, regression, multinode, complex; by default quick, standard,
# regression and multinode. Needs target/fi (`make stage`). Fabtests are no package: their sources are taken from the host's source
# package of libfabric, where the mirror has it; otherwise FOLDER is libfabric's tree of that release. They are built once,
# in the cache. Their script ends every process whose name begins with fi_, and has ports of its own: it runs among
# processes and in a network of its own. Results lie in target/c-tests/HOST/fabtests. The last line is `N passed, N failed`.
set -u
cd "$(dirname "$0")/../.." || exit 2
. c-tests/host.sh
usage() { echo "usage: $0 debian12|debian13 [--source FOLDER] [SET …]" >&2; exit 2; }
host_use "${1-}" || usage
shift
source=
if [ "${1-}" = --source ]; then
    [ -d "${2-}/fabtests" ] || { echo "$0: ${2-} has no folder fabtests" >&2; exit 2; }
    source=$(cd "$2" && pwd -P)
    shift 2
fi
sets=("$@")
[ $# -gt 0 ] || sets=(quick standard regression multinode)
[ -e target/fi/libgni-fi.so ] || give_up "target/fi is staged"
case $host in
debian12) suite=bookworm release=1.17.0 propagation=private ;;
debian13) suite=trixie release=2.1.0 propagation=unchanged ;; # the chroot is private already, and its root no mount
esac
work=target/c-tests/$host/fabtests
log=$work/log
mkdir -p "$work"

# The chroot sees the repository alone: they are built there, and kept outside.
kept=${HAWSER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hawser}/fabtests-$release
if [ ! -d "$kept/bin" ]; then
    rm -rf "$work/built" "$work/tree"
    mkdir -p "$work/tree"
    if [ -z "$source" ]; then
        tests/hosts/source.sh "$suite" libfabric "libfabric_$release.orig.tar" "$work/tree" >"$log" 2>&1 ||
            give_up "the mirror has the source package of libfabric $release (otherwise: --source, a tree of libfabric's tag v$release)"
        source=$work/tree
    fi
    echo "fabtests $release are built" >&2
    cp -a "$source/fabtests" "$work/tree/build" || give_up "fabtests are copied"
    (cd "$work/tree/build" && { [ -e configure ] || ./autogen.sh; }) >"$log" 2>&1 || give_up "fabtests' configure is made"
    # shellcheck disable=SC2016 # expanded there
    "${there[@]}" sh -c 'cd "$1/tree/build" && ./configure --prefix="$1/built" && make -j2 install' build "$root/$work" >"$log" 2>&1 ||
        give_up "fabtests $release build"
    mkdir -p "$(dirname "$kept")" && cp -a "$work/built" "$kept.new" && mv "$kept.new" "$kept" || give_up "fabtests are kept"
fi
rm -rf "$work/built" "$work/tree"
cp -a "$kept" "$work/built" || give_up "fabtests are there"

expected=c-tests/gni/fabtests.txt
# Each test, its result, and what its processes have complained of. Where one of them ends for that, another may fail for want of it;
# and those of many processes have no word for what is not run.
# shellcheck disable=SC2016 # awk's
results='
    function tell() { if (name != "") print name "\t" result "\t" says }
    /^- name:/ { tell(); sub(/^- name: */, ""); sub(/ -p "gni"/, ""); sub(/ *$/, ""); name = $0; result = "none"; says = " " }
    /^  result:/ { result = $2 }
    /\[error\]|ret=-/ { gsub(/\t/, " "); says = says $0 }
    END { tell() }'
for set in "${sets[@]}"; do
    log=$work/$set
    # One test ends a child with SIGINT: who is in the background has it ignored, and a library of Debian 12's libfabric
    # (libinfinipath) handles it otherwise.
    # shellcheck disable=SC2016 # expanded there
    unshare --pid --fork --kill-child --net --ipc sh -c 'ip link set lo up && exec "$@"' alone "${there[@]}" unshare --mount --propagation "$propagation" sh -c '
        mount -t proc none /proc && mount -t tmpfs none /dev/shm && cd /tmp &&
            exec env --default-signal=INT IPATH_NO_BACKTRACE=1 FI_PROVIDER_PATH="$1/target/fi" "$2/bin/runfabtests.sh" -vv -t "$3" -T 120 -p "$2/bin" gni' \
        fabtests "$root" "$root/$work/built" "$set" >"$log" 2>&1 </dev/null
    count=0
    while IFS=$'\t' read -r name result says; do
        count=$((count + 1))
        IFS=$'\t' read -r word reason < <(awk -F '\t' -v host="$host" -v name="$name" '($1 == host || $1 == "both") && $2 == name { print $3 "\t" $4 }' "$expected")
        [ -n "$word" ] && [ "$result" = Fail ] && case $says in *"$word"*) result=Notrun ;; esac
        case $result:$reason in
        Pass:) ok "fabtests $release, $set: $name" ;;
        Notrun:?*) ok "fabtests $release, $set: $name is not run: $reason" ;;
        *) not_ok "fabtests $release, $set: $name: $result${reason:+, which is to be not run}" ;;
        esac
    done < <(awk "$results" "$log")
    [ "$count" -gt 0 ] || not_ok "fabtests $release, $set: any test ran" "$log"
done
sum
