#!/usr/bin/env bash
# Counts the instructions of an 8-byte message of one rank to itself, under callgrind, for hawser
# and for the host's own OFI MTL; also of an idle poll and of a probe that finds nothing.
#
#     bench/instructions.sh [--host debian12|debian13|all] [--provider P] [--variants V[,V]] [--cases C[,C]]
#
# --host        the default is all: this host, and Debian 13 if its tree was built
# --provider    the default is net, tcp on Debian 13
# --variants    the default is stock,hawser
# --cases       the default is send,waitall,poll,iprobe

root=$(cd "$(dirname "$0")/.." && pwd -P)
. "$root/bench/host.sh"
. "$root/bench/header.sh"

choice=all provider= variants=stock,hawser cases=send,waitall,poll,iprobe
while [ $# -gt 0 ]; do
    case $1 in
    --host) choice=$2; shift ;;
    --provider) provider=$2; shift ;;
    --variants) variants=$2; shift ;;
    --cases) cases=$2; shift ;;
    *) sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit 2 ;;
    esac
    shift
done

if [ "$choice" != "$host" ]; then
    names=$(hosts_of "$choice")
    for name in $names; do
        on_host "$name" bench/instructions.sh --host "$name" --variants "$variants" --cases "$cases" \
            ${provider:+--provider "$provider"}
    done
    exit
fi

provider=${provider:-$own_provider}
IFS=, read -r -a cases <<<"$cases"
iterations=(1000 2000)

# component_of VARIANT: what counts as the component, as bench/report takes it: an object's name, or
# an object's name and an address range in it. Open MPI 5 has the stock MTL inside libmpi, where
# few of its functions kept their names, but all lie between the first and the last of those.
component_of() {
    if [ "$1" = hawser ]; then
        basename "$(readlink -f "$mca/mca_mtl_ofi.so")"
    elif [ "$major" -lt 5 ]; then
        echo mca_mtl_ofi.so
    else
        local library
        library=$(ldd "$results/selfmsg" | sed -n 's/^\s*libmpi\.so[^ ]* => \([^ ]*\) .*/\1/p')
        nm -D --defined-only "$library" | sort |
            awk -v object="$(basename "$(readlink -f "$library")")" '
                $2 == "T" && $3 ~ /^ompi_mtl_ofi_/ { if (!first) first = $1; last = $1 }
                END { print object ":0x" first "-0x" last }'
    fi
}

compile selfmsg
log=$results/instructions.log
log_header env >"$log"
for variant in ${variants//,/ }; do
    singleton_environment "$variant" "$provider"
    for case in "${cases[@]}"; do
        for count in "${iterations[@]}"; do
            if ! env "${environment[@]}" valgrind --tool=callgrind --toggle-collect=measured \
                --dump-instr=yes --compress-pos=no \
                --callgrind-out-file="$results/callgrind.$variant.$case.$count" \
                "$results/selfmsg" "$case" "$count" >"$results/valgrind.out" 2>&1; then
                cat "$results/valgrind.out" >&2
                die "selfmsg $case $count failed with ${environment[*]}"
            fi
        done
    done
    python3 "$root/bench/report" instructions --title "$host, $provider, $variant" \
        --component "$(component_of "$variant")" --iterations "${iterations[@]}" \
        --cases "${cases[@]}" --prefix "$results/callgrind.$variant" \
        --log "$log" --run "host=$host over=$provider variant=$variant"
done | tee "$results/instructions.txt"
