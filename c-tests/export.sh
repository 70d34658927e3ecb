#!/usr/bin/env bash
# What the library shows to the process that loads it: its component structures, hawser_* and fi_prov_ini, no
# more; what it needs: the C library, no more; and the linker flags that loading depends on.
set -u
cd "$(dirname "$0")/.."
library=${1:-target/release/libhawser.so}
passed=0 failed=0

check() { # check TEXT STATUS
    if [ "$2" = 0 ]; then passed=$((passed + 1)); echo "ok $1"; else failed=$((failed + 1)); echo "not ok $1"; fi
}

symbols=$(nm -D --defined-only "$library" | awk '{print $3}')
strangers=$(grep -vE '^(mca_[a-z0-9]+_[a-z0-9_]+_component|fi_prov_ini|hawser_[a-z0-9_]+)$' <<<"$symbols")
check "exports nothing else${strangers:+: found $(tr '\n' ' ' <<<"$strangers")}" "$([ -z "$strangers" ]; echo $?)"
components=$(pkgconfig/components.sh | sed 's/.*/mca_&_component/' | sort)
found=$(grep -E '^mca_[a-z0-9]+_[a-z0-9_]+_component$' <<<"$symbols" | sort)
[ -n "$components" ] && diff <(echo "$components") <(echo "$found")
check "exports the component structures of the list, and no other" $?
for name in fi_prov_ini hawser_version hawser_refusal hawser_strerror hawser_btl_find hawser_btl_list hawser_mtl_find hawser_mtl_list; do
    grep -qx "$name" <<<"$symbols"
    check "exports $name" $?
done
writable=$(nm -D --defined-only "$library" | awk '$3 ~ /_component$/ && $2 !~ /[BD]/')
check "component structures are writable data" "$([ -z "$writable" ]; echo $?)"

needed=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
strangers=$(grep -vE '^(libc\.so\.6|libgcc_s\.so\.1|ld-linux.*|libm\.so\.6|libpthread\.so\.0|libdl\.so\.2)$' <<<"$needed")
check "needs only the C library${strangers:+: found $(tr '\n' ' ' <<<"$strangers")}" "$([ -z "$strangers" ]; echo $?)"
readelf -d "$library" | grep -q NODELETE
check "is never unloaded (-z nodelete)" $?
readelf -d "$library" | grep -q SYMBOLIC
check "binds to itself first (-Bsymbolic)" $?
undefined=$(nm -D --undefined-only "$library" | awk '{print $2}' | grep -E '^(opal|ompi|orte|mca|fi|PMIx|cu|ibv)_' )
check "declares no symbol of a host or of an optional library" "$([ -z "$undefined" ]; echo $?)"
! grep -q HAWSER_PROVOKE "$library"
check "knows nothing of provoked panics" $?

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
