# What c-tests/verbs/probe.c says of a device, against what devices say: one file of lines for each kind of device and side in
# c-tests/verbs/expected. For the stand-in (c-tests/verbs-standin.sh) and for real devices (tests/rig/probe). Sourced in the
# root of the repository; `there` is what comes before a command of the host in use.

# probe_compile FILE
probe_compile() {
    "${there[@]}" gcc -std=gnu11 -O1 -Wall -Wextra -Wpedantic -Werror c-tests/verbs/probe.c -o "$1" -libverbs -lrdmacm -lpthread
}

# probe_facts FILE: what it has said, without what is of one run only: names, times but for whether a receiver's timer of
# 655 ms was waited for, what a refused call left in memory, and when events came beside.
probe_facts() {
    awk '
    /connect time/ || /async event/ { next }
    match($0, /(rxe|siw)[0-9]+ /) { $0 = substr($0, 1, RSTART + 2) " " substr($0, RSTART + RLENGTH) }
    { sub(/, [0-9.]+ ms$/, ""); sub(/refused, old value.*/, "refused") }
    /Work Request Flushed/ { sub(/opcode -?[0-9]+, /, ""); sub(/Error, flags.*/, "Error") }
    match($0, / after [0-9.]+ ms$/) {
        time = substr($0, RSTART + 7) + 0
        $0 = substr($0, 1, RSTART - 1)
        if (/timer code -1|rnr_retry 7/ && time >= 655) $0 = $0 " after 655 ms or more"
    }
    { gsub(/  +/, "  "); print }' "$1"
}

# probe_side DEVICE PREFIX SIDE: what PREFIX-SIDE.log says agrees; each line is one of a file, in which `*` stands for what was
# not looked at. Says where it does not.
probe_side() {
    local expected=c-tests/verbs/expected/$1-$3 said=$2-$3.facts line got status=0
    probe_facts "$2-$3.log" >"$said"
    while IFS= read -r line <&3; do
        IFS= read -r got <&4 || got=nothing
        # shellcheck disable=SC2053 # a pattern
        [[ $got == $line ]] || { echo "'$got', not '$line'"; status=1; }
    done 3<"$expected" 4<"$said"
    [ "$(wc -l <"$said")" = "$(wc -l <"$expected")" ] || { echo "$3 says $(wc -l <"$said") lines, not $(wc -l <"$expected")"; status=1; }
    return $status
}

# probe_agrees roce|iwarp PREFIX: both sides do.
probe_agrees() {
    local status=0
    probe_side "$1" "$2" client || status=1
    probe_side "$1" "$2" server || status=1
    return $status
}
