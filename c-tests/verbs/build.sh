# The software stand-in for libibverbs.so.1 and librdmacm.so.1, for the scripts that test over it. Sourced after
# c-tests/host.sh, in the root of the repository, with `log` set.

verbs_flags=(-std=gnu11 -g -Wall -Wextra -Wpedantic -Werror -pthread)

# verbs_libraries FOLDER FLAG…: builds both there, for the host in use, whose headers have to be there.
verbs_libraries() {
    local folder=$1 source sources=()
    shift
    for source in c-tests/verbs/*.c; do
        case $source in */rdmacm.c | */probe.c) ;; *) sources+=("$source") ;; esac
    done
    "${there[@]}" gcc "${verbs_flags[@]}" -O2 "$@" -fPIC -shared -fvisibility=hidden -Wl,-soname,libibverbs.so.1 -Wl,-z,nodelete \
        -Wl,--version-script=c-tests/verbs/libibverbs.map "${sources[@]}" -o "$folder/libibverbs.so.1" >"$log" 2>&1 &&
        "${there[@]}" gcc "${verbs_flags[@]}" -O2 "$@" -fPIC -shared -fvisibility=hidden -Wl,-soname,librdmacm.so.1 -Wl,-z,nodelete \
            -Wl,--version-script=c-tests/verbs/librdmacm.map c-tests/verbs/rdmacm.c "$folder/libibverbs.so.1" -o "$folder/librdmacm.so.1" >"$log" 2>&1
}

# verbs_ledger PREFIX COUNT: COUNT processes have written whole ledgers, and nothing is left open in any.
verbs_ledger() {
    local file ended=0
    for file in "$1".*; do
        [ -e "$file" ] || break
        tail -n 1 "$file" | grep -qx end && ended=$((ended + 1))
        awk -v file="$file" '$1 == "thing" && $NF != 0 { print file ": " $NF " " $2 " left"; bad = 1 } END { exit bad }' "$file" || return 1
    done
    [ "$ended" = "$2" ] || { echo "$ended ledgers, not $2"; return 1; }
}
