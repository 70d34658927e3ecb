#!/usr/bin/env bash
# A third component, of under 200 lines (tests/loop), built from the same list and loaded by a real job:
# one rank that sends to itself over it, instead of Open MPI's own `self`.
#
#     c-tests/loop.sh debian12|debian13
#
# debian12 is this machine, debian13 the chroot that tests/hosts/debian13.sh keeps. The last line is
# `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 2

. c-tests/host.sh

host_use "${1-}" || { echo "usage: $0 debian12|debian13" >&2; exit 2; }
work=target/c-tests/$host/loop
log=$work/log
mkdir -p "$work/mca" "$work/logs" || exit 2

"${CARGO:-cargo}" build --quiet --profile probe --lib --features provoke,loop >"$log" 2>&1 || give_up "the library builds with the component"
cp -f target/probe/libhawser.so "$work/mca/libhawser.so"
components=$(pkgconfig/components.sh loop 2>"$log") || give_up "the list of components is read"
for name in $components; do ln -sf libhawser.so "$work/mca/mca_$name.so"; done
"${there[@]}" mpicc -std=gnu11 -O1 -Wall -Wextra -Werror -o "$work/itself" c-tests/loop/itself.c >"$log" 2>&1 || give_up "itself.c compiles"

# job WORD…: a job of one rank; fills `log` and `status`.
job() {
    c-tests/patience.sh 60 "${there[@]}" mpirun --oversubscribe -n 1 --mca mca_base_component_path "$root/$work/mca:$stock" \
        "${quiet[@]}" --mca pml ob1 "$@" "$root/$work/itself" >"$log.raw" 2>&1 </dev/null
    status=$?
    tr -d '\0' <"$log.raw" >"$log"
}

lines=$(wc -l <tests/loop/transport.rs)
[ "$lines" -lt 200 ]
check "the component has $lines lines, fewer than 200" $?
! nm -D --defined-only target/release/libhawser.so 2>/dev/null | grep -q mca_btl_loop
check "the shipped library does not have it" $?
"${there[@]}" env OMPI_MCA_mca_base_component_path="$root/$work/mca:$stock" ompi_info --parsable --param btl loop --level 9 >"$log" 2>&1
says '^mca:btl:loop:param:btl_loop_eager_limit:value:"?4096"?$'
check "ompi_info lists its parameter" $?
job --mca btl loop
[ "$status" = 0 ] && says '^PASS itself, carried [1-9][0-9]*$'
check "a job over it alone: every message is right, and its counter has counted them" $?
job --mca btl loop --mca btl_loop_eager_limit 1024
[ "$status" = 0 ] && says '^PASS itself, carried [1-9][0-9]*$'
check "with a parameter of its own" $?
job --mca btl self
[ "$status" = 0 ] && says '^PASS itself, carried 0$'
check "nobody asks for it: it offers nothing" $?

rm -f "$log.raw"
sum
