# The software stand-in for libcuda.so.1, for the scripts that test over it. Sourced after c-tests/host.sh,
# in the root of the repository, with `log` set.

cuda_flags=(-std=gnu11 -g -Wall -Wextra -Wpedantic -Werror -pthread)

# cuda_library FOLDER FLAG…: builds it there, for the host in use.
cuda_library() {
    local folder=$1
    shift
    "${there[@]}" gcc "${cuda_flags[@]}" -O2 "$@" -fPIC -shared -fvisibility=hidden -Wl,-soname,libcuda.so.1 -Wl,-z,nodelete \
        c-tests/cuda/*.c -o "$folder/libcuda.so.1" >"$log" 2>&1
}

# cuda_ledger PREFIX COUNT: COUNT processes have written whole ledgers, and nothing is left open in any.
cuda_ledger() {
    local file ended=0
    for file in "$1".*; do
        [ -e "$file" ] || break
        tail -n 1 "$file" | grep -qx end && ended=$((ended + 1))
        awk -v file="$file" '$1 == "thing" && $NF != 0 { print file ": " $NF " " $2 " left"; bad = 1 } END { exit bad }' "$file" || return 1
    done
    [ "$ended" = "$2" ] || { echo "$ended ledgers, not $2"; return 1; }
}
