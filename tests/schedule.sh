# Runs steps, several at a time, and adds up what they say. Sourced by tests/run.sh.
#
# A step may start when those that it names have ended well. Each has its log, and its own folder for
# temporary files; what one leaves there goes with it.

names=() needs=() commands=()
logs=target/test-logs
# Seconds between two lines that say where the running steps are.
period=30

# step NAME AFTER COMMAND…: AFTER is another step's name, several with commas between them, or `-`.
step() {
    local after=${2//,/ }
    [ "$after" != - ] || after=
    names+=("$1") needs+=("$after")
    commands+=("$(printf '%q ' "${@:3}")")
}

# index NAME: where it stands, in `at`.
index() {
    for at in "${!names[@]}"; do [ "${names[at]}" != "$1" ] || return 0; done
    return 1
}

# choose NAME…: those, and what they need, are waiting; without names, all.
choose() {
    local at
    state=()
    [ $# -gt 0 ] || { for at in "${!names[@]}"; do state[at]=waiting; done; return; }
    want "$@"
}

# want NAME…: those are waiting, and what they need.
want() {
    local name at
    for name in "$@"; do
        index "$name" || { echo "there is no step $name; tests/run.sh --list says which there are"; exit 2; }
        state[at]=waiting
        # shellcheck disable=SC2086 # a list of words
        want ${needs[at]}
    done
}

# need STEP: sets `need` to where what it needs has got to: done, waiting, or failed, and then `missing` to what has.
need() {
    local name at
    need=done
    for name in ${needs[$1]}; do
        index "$name"
        case ${state[at]} in
        failed) need=failed missing=$name; return ;;
        passed) ;;
        *) need=waiting ;;
        esac
    done
}

# start STEP: by its index.
start() {
    local name=${names[$1]}
    printf '=== %s begins\n' "$name"
    # A process group for the step, and none for each of its commands.
    set -m
    (
        set +m
        # A short name: sockets lie there, and theirs may have 107 bytes.
        TMPDIR=$(mktemp -d /tmp/hawser.XXXXXX) && export TMPDIR || exit 1
        TIMEFORMAT='%0R %0U %0S'
        { time eval "${commands[$1]}" >"$logs/$name.log" 2>&1 </dev/null; } 2>"$logs/$name.time"
        status=$?
        rm -rf --one-file-system "$TMPDIR"
        echo "$1 $status" >&"$ended"
    ) &
    pids[$1]=$!
    set +m
    state[$1]=running
}

# finish STEP STATUS: prints what it said, and adds it up.
finish() {
    local name=${names[$1]} status=$2 log=$logs/${names[$1]}.log sum p=0 f=0 a b
    printf '\n=== %s\n' "$name"
    cat "$log"
    # `cargo test` says a sum for each of its programs, everybody else one for all.
    sum=$(sed -nE 's/.*\b([0-9]+) passed[,;] ([0-9]+) failed.*/\1 \2/p' "$log" | if [ "$name" = rust ]; then cat; else tail -n 1; fi)
    while read -r a b; do [ -n "$a" ] && p=$((p + a)) f=$((f + b)); done <<<"$sum"
    if [ $((p + f)) = 0 ] && [ "$status" = 0 ]; then p=1; fi
    if [ "$f" = 0 ] && [ "$status" != 0 ]; then f=1; fi
    passed=$((passed + p)) failed=$((failed + f))
    state[$1]=passed
    [ "$f" = 0 ] || { state[$1]=failed broken="$broken $name"; }
    read -r wall user system <"$logs/$name.time" || wall=0 user=0 system=0
    table+=("$wall $((user + system)) $name")
    printf '=== %s: %d passed, %d failed, %d s, %d s of a core\n\n' "$name" "$p" "$f" "$wall" $((user + system))
}

# skip STEP: what it needs, `missing`, has failed.
skip() {
    state[$1]=failed failed=$((failed + 1)) broken="$broken ${names[$1]}"
    echo "not ok ${names[$1]}: not run, because $missing has failed" | tee "$logs/${names[$1]}.log"
}

# news: where the running steps are.
news() {
    local at log
    for at in "${!state[@]}"; do
        [ "${state[at]}" = running ] || continue
        log=$logs/${names[at]}.log
        printf '    %4d s: %s: %d lines, the last: %s\n' $((SECONDS - begun)) "${names[at]}" "$(wc -l <"$log")" \
            "$(tr -d '\0' <"$log" | grep -a . | tail -n 1 | cut -c 1-110)"
    done
}

# stop: ends what runs; each step is a process group.
stop() {
    local at
    trap '' INT TERM
    for at in "${!state[@]}"; do
        [ "${state[at]}" != running ] || kill -TERM -- "-${pids[at]}" 2>/dev/null
    done
    wait
    echo "stopped"
    exit 130
}

# ended_within SECONDS: a step has ended, and is finished; false if none has.
ended_within() {
    local line= rest at status
    if ! IFS= read -r -t "$1" -u "$ended" line; then
        [ -n "$line" ] || return 1
        # The time was over amid a line: its rest is there, or about to be.
        IFS= read -r -u "$ended" rest
        line+=$rest
    fi
    read -r at status <<<"$line"
    wait "${pids[at]}"
    finish "$at" "$status"
}

# run_steps NAME…: sets `passed` and `failed`.
run_steps() {
    local lanes=${HAWSER_LANES:-$(($(nproc) + ($(nproc) + 1) / 2))} at need missing ended gone running wall user system name
    passed=0 failed=0 broken= table=() pids=() begun=$SECONDS
    declare -ga state
    mkdir -p "$logs"
    choose "$@"
    trap stop INT TERM
    # Steps say here when they end.
    rm -f "$logs/ended" && mkfifo "$logs/ended" && exec {ended}<>"$logs/ended" || exit 1
    while :; do
        running=0
        for at in "${!state[@]}"; do [ "${state[at]}" != running ] || running=$((running + 1)); done
        for at in "${!state[@]}"; do
            [ "${state[at]}" = waiting ] || continue
            need "$at"
            case $need in
            failed) skip "$at" ;;
            done) [ "$running" -ge "$lanes" ] || { start "$at"; running=$((running + 1)); } ;;
            esac
        done
        [ "$running" -gt 0 ] || break
        if ended_within $period; then continue; fi
        news
        # One that somebody has killed says nothing; one that has just ended has said so before it went.
        gone=()
        for at in "${!state[@]}"; do
            [ "${state[at]}" != running ] || kill -0 "${pids[at]}" 2>/dev/null || gone+=("$at")
        done
        [ ${#gone[@]} = 0 ] || while ended_within 0.1; do :; done
        for at in ${gone[@]+"${gone[@]}"}; do
            [ "${state[at]}" != running ] || finish "$at" 137
        done
    done
    exec {ended}>&-
    trap - INT TERM

    echo "the slowest steps, in seconds, and seconds of a core:"
    printf '%s\n' "${table[@]}" | sort -rn | head -n 12 | while read -r wall user name; do printf '%7d %7d  %s\n' "$wall" "$user" "$name"; done
    printf '%7d %7d  all, %d steps at a time\n' $((SECONDS - begun)) "$(printf '%s\n' "${table[@]}" | awk '{ n += $2 } END { print n }')" "$lanes"
    echo
    for name in $broken; do
        echo "failed in $name:"
        grep -aE '^not ok|^test .*FAILED$|^error|: failed: |did not finish' "$logs/$name.log"
    done
}
