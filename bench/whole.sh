#!/usr/bin/env bash
# All comparisons, one after the other, and a page of them: target/bench/report/index.html, with its plots, and the
# figures as CSV and JSON beside it.
#
#     bench/whole.sh [--quick] [--host debian12|debian13|all] [--parts P[,P...]]
#
# --quick   few sizes and rounds, the loopback interface and one that loses packets: under five minutes on a quiet machine
# --host    the default is all: this host, and Debian 13 if its tree was built
# --parts   mtl (run.sh), usnic, smcuda, start, instructions: all of them
#
# A part that fails stops no other one: the page says which did, and why; so does the exit status. What earlier runs have
# measured is not on the page.
cd "$(dirname "$0")/.." || exit 2
set -uo pipefail

quick= hosts=all parts=mtl,usnic,smcuda,start,instructions
while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=yes ;;
    --host) hosts=$2; shift ;;
    --parts) parts=$2; shift ;;
    *) sed -n '2,/^cd/{/^cd/d;s/^# \{0,1\}//p}' "$0"; exit 2 ;;
    esac
    shift
done
case $hosts in all | debian12 | debian13) ;; *) echo "whole.sh: no host $hosts" >&2; exit 2 ;; esac

bench=target/bench
rm -rf "$bench/report"
mkdir -p "$bench/report/parts"
rm -f "$bench"/*/{pairs,usnic,start,instructions}.log "$bench"/*/smcuda/log
table=$bench/report/parts.tsv
failed=0

# note PART HOST STATUS SECONDS TEXT: for the page; a status that is not a number is one of what was not run.
note() { printf '%s\t%s\t%s\t%s\t%s\n' "$@" >>"$table"; }

# part NAME HOST COMMAND…: runs it, and notes how it went and what it has left out.
part() {
    local name=$1 host=$2 begin=$SECONDS status said log=$bench/report/parts/$1-$2.txt
    printf '\n=== %s, %s\n' "$name" "$host"
    "${@:3}" 2>&1 </dev/null | tee "$log"
    status=${PIPESTATUS[0]}
    if [ "$status" = 0 ]; then
        said=$(grep -a '^not run' "$log" | paste -sd ' ')
    else
        failed=$((failed + 1))
        said=$(grep -a . "$log" | tail -n 1 | tr '\t' ' ')
    fi
    note "$name" "$host" "$status" $((SECONDS - begin)) "$said"
}

if [ "$hosts" = all ]; then
    hosts=debian12
    if why=$(tests/hosts/debian13.sh able) && why=$(tests/hosts/debian13.sh run -- true 2>&1); then
        hosts="debian12 debian13"
    else
        note all debian13 - 0 "$why"
    fi
fi

for host in $hosts; do
    for name in ${parts//,/ }; do
        script=bench/$name.sh more=()
        case $name in
        mtl) script=bench/run.sh more=(${quick:+--quick}) ;;
        usnic) [ -z "$quick" ] || more=(--quick --rounds 2 --networks lo --against tcp,udp --parts speed,loss) ;;
        smcuda) more=(${quick:+--quick}) ;;
        start) [ -z "$quick" ] || more=(--rounds 3) ;;
        instructions) [ -z "$quick" ] || more=(--cases send) ;;
        *) echo "whole.sh: no part $name" >&2; exit 2 ;;
        esac
        part "$name" "$host" "$script" --host "$host" ${more[@]+"${more[@]}"}
    done
done

python3 bench/report page "$bench" "$bench/report" || exit 1
[ "$failed" = 0 ] || echo "parts that failed: $failed; the page says why"
[ "$failed" = 0 ]
