#!/usr/bin/env bash
# The test suite's own machinery: which steps run, side by side and in which order; the cache of trees;
# the clock of limits; which cargo is used. Without hosts, and in seconds.
#
#     tests/suite.sh
#
# The last line is `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 2
here=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

check() { # check TEXT STATUS
    if [ "$2" = 0 ]; then passed=$((passed + 1)); echo "ok $1"; else failed=$((failed + 1)); echo "not ok $1"; fi
}
# gone FILE: the process whose number is there ends.
gone() { c-tests/patience.sh 30 tail -f /dev/null --pid="$(cat "$1")"; }
is() { [ "$1" = "$2" ] || { echo "    | $1, not $2"; return 1; }; }

# --- steps

# steps WORD…: runs those of $work/steps; fills `said`.
steps() {
    said=$(cd "$work" && bash -c '
        . "$0/tests/schedule.sh"
        . ./steps
        run_steps "$@"
        echo "$passed passed, $failed failed"
    ' "$here" "$@" 2>&1)
}
last() { tail -n 1 <<<"$said"; }

cat >"$work/steps" <<'STEPS'
step good - sh -c 'echo "ok it; 3 passed, 1 failed of another"; echo "2 passed, 0 failed"'
step silent - true
step bad - sh -c 'echo "not ok a thing"; echo "4 passed, 1 failed"'
step dead - sh -c 'kill -KILL $$'
step after-good good sh -c 'echo "1 passed, 0 failed"'
step after-bad bad sh -c 'echo "1 passed, 0 failed"'
step after-that after-bad true
step after-both good,silent sh -c 'echo "1 passed, 0 failed"'
step after-either good,bad true
STEPS
steps
is "$(last)" "9 passed, 5 failed"
check "sums are added up; a step without a sum, a dead one, and those that cannot run count" $?
grep -A1 '^failed in bad:$' <<<"$said" | grep -qx 'not ok a thing'
check "the lines that failed are repeated" $?
grep -qx 'not ok after-that: not run, because after-bad has failed' <<<"$said"
check "what needs a failed step is not run, nor what needs that" $?
grep -qx 'not ok after-either: not run, because bad has failed' <<<"$said"
check "nor what needs another one as well" $?
steps after-good
is "$(last)" "3 passed, 0 failed"
check "a step that is named brings what it needs, and no more" $?
steps after-both
is "$(last)" "4 passed, 0 failed"
check "all that it needs" $?
steps nonsuch
grep -q '^there is no step nonsuch' <<<"$said"
check "a step that is not there is refused" $?

cat >"$work/steps" <<'STEPS'
period=0.1
news() { while kill -0 "${pids[0]}" 2>/dev/null; do sleep 0.05; done; }
step late - sh -c 'sleep 0.3; echo "2 passed, 0 failed"'
STEPS
steps
is "$(last)" "2 passed, 0 failed" && is "$(grep -c '^=== late$' <<<"$said")" 1
check "a step that ends while it is looked for is not taken for a dead one" $?

# The shell that waits looks up in the middle of what a step says when it ends. Nobody else says anything meanwhile.
cat >"$work/steps" <<'STEPS'
period=0.1
echo() { if [ "$*" = "1 0" ]; then printf 1; sleep 0.5; printf ' 0\n'; else builtin echo "$@"; fi; }
step first - true
step second first sh -c 'echo "2 passed, 0 failed"'
STEPS
steps
is "$(last)" "3 passed, 0 failed" && is "$(grep -c '^=== first$' <<<"$said")" 1
check "a step whose last word comes in two parts has ended once, and well" $?

# Each of two waits for the other, or for nothing: in one lane neither would end.
mkfifo "$work/there" "$work/back"
cat >"$work/steps" <<'STEPS'
step one - sh -c 'echo 1 >there; read x <back'
step two - sh -c 'read x <there; echo 1 >back'
STEPS
HAWSER_LANES=2 steps
is "$(last)" "2 passed, 0 failed"
check "steps run side by side" $?
cat >"$work/steps" <<'STEPS'
step one - sh -c '[ ! -e held ] && touch held && sleep 0.2 && rm held'
step two - sh -c '[ ! -e held ] && touch held && sleep 0.2 && rm held'
STEPS
HAWSER_LANES=1 steps
is "$(last)" "2 passed, 0 failed"
check "and one at a time in one lane" $?
cat >"$work/steps" <<'STEPS'
step one - sh -c 'echo "$TMPDIR" >one.tmp; touch "$TMPDIR/file"'
step two - sh -c 'echo "$TMPDIR" >two.tmp; [ ! -e "$TMPDIR/file" ]'
STEPS
steps
is "$(last)" "2 passed, 0 failed" && ! cmp -s "$work/one.tmp" "$work/two.tmp" && [ ! -e "$(cat "$work/one.tmp")" ]
check "each has a folder for temporary files, which goes with it" $?
cat >"$work/steps" <<'STEPS'
step endless - sh -c 'echo $$ >endless.pid; exec sleep 1000'
STEPS
rm -f "$work/endless.pid"
(cd "$work" && exec bash -c '. "$0/tests/schedule.sh"; . ./steps; run_steps' "$here") >/dev/null 2>&1 &
runner=$!
until [ -s "$work/endless.pid" ]; do sleep 0.05; done
kill -TERM $runner
wait $runner
is $? 130 && gone "$work/endless.pid"
check "what is stopped ends its steps" $?

# --- trees: debootstrap and chroot are played

# tree WORD…: calls one of tree.sh's functions; `recipe` is what is installed.
cat >"$work/tree" <<'TREE'
. "$0/tests/hosts/tree.sh"
name="second host" suite=trixie base=x packages= answers="$recipe"
export XDG_CACHE_HOME=$PWD/cache
unset HAWSER_CHROOT
tree_able() { :; }
tree_answers() { cat "$1/usr/answer" 2>/dev/null; }
tree_build() {
    rm -rf "$1"; mkdir -p "$1/usr"; echo made >>made
    [ -z "${slow:-}" ] || sleep 0.3
    [ -z "${dies:-}" ] || kill -KILL $$
    echo "$answers" >"$1/usr/answer"; cp "$1/usr/answer" "$1/.hawser-answers"
}
tree_path
tree_make >>log 2>&1
TREE
tree() { (cd "$work" && recipe=$1 bash -eu tree.sh); }
sed "s|\$0|$here|" "$work/tree" >"$work/tree.sh"
count() { wc -l <"$work/made"; }
trees() { find "$work/cache/hawser" -mindepth 1 -maxdepth 1 -type d ! -name '*.new' | wc -l; }

tree one && tree one && is "$(count)" 1
check "a tree is made once" $?
tree two && is "$(count) $(trees)" "2 2"
check "another recipe is another tree" $?
tree one && is "$(count)" 2
check "the other one stays" $?
rm "$work/cache/hawser"/trixie-*/usr/answer
tree one && is "$(count)" 3
check "one that does not answer is made anew" $?
sed -i 's/.*/else/' "$work/cache/hawser"/trixie-*/usr/answer
tree one && is "$(count)" 4
check "one that answers something else, too" $?
(export dies=yes && tree three) 2>/dev/null
is "$(count) $(trees)" "5 2"
check "one that is cut short is not there" $?
tree three && is "$(count) $(trees)" "6 3"
check "and can be made then" $?
(export slow=yes && tree four) &
first=$!
(export slow=yes && tree four) &
wait $first && wait $! && is "$(count) $(trees)" "7 4"
check "two who want one at once make one" $?

# --- limits

c-tests/patience.sh 60 sh -c 'exit 7'
is $? 7
check "a command in time has its own status" $?
is "$(echo word | c-tests/patience.sh 60 cat)" word
check "and its own input and output" $?
c-tests/patience.sh 1 sh -c "echo \$\$ >$work/late.pid; exec sleep 1000"
is $? 124 && gone "$work/late.pid"
check "a late one is ended" $?
cp "$(command -v sleep)" "$work/rank"
c-tests/patience.sh -p "$work/rank" 1 sh -c "'$work/rank' 1000; echo" >"$work/said"
is $? 124 && is "$(c-tests/patience.sh -p "$work/rank" 60 "$work/rank" 0; echo $?)" 0
check "one whose rank is there when it has to be ended is late" $?
c-tests/patience.sh -p "$work/rank" 1 sh -c "'$work/rank' 0; exec sleep 1000"
is $? 123
check "one that waits when its ranks have ended is told from it" $?
is "$(bash -c '. c-tests/clock.sh; clock_cores=2; clock=0 clock_at=0; unset EPOCHREALTIME; EPOCHREALTIME=8.000000
    read() { _=; wanting=8/99; }; clock_read; echo $clock')" 2000
check "with eight that want two cores, four seconds are one" $?

# --- the compiler

mkdir "$work/bin"
printf '#!/bin/sh\necho "rustc 1.63.0"\n' >"$work/bin/rustc"
printf '#!/bin/sh\necho "cargo 1.63.0"\n' >"$work/bin/cargo"
chmod +x "$work/bin/rustc" "$work/bin/cargo"
old=$(PATH=$work/bin:/usr/bin:/bin tests/setup.sh path)
newer=$(/usr/bin/rustc --version 2>/dev/null | sed 's/^rustc 1\.\([0-9]*\)\..*/\1/')
if [ "${newer:-0}" -ge 92 ]; then is "$old" "/usr/bin:$work/bin:/usr/bin:/bin"; else is "$old" "$work/bin:/usr/bin:/bin"; fi
check "an old cargo gives way to the distribution's newer one, if there is one" $?
printf '#!/bin/sh\necho "rustc 1.100.0"\n' >"$work/bin/rustc"
is "$(PATH=$work/bin:/usr/bin:/bin tests/setup.sh path)" "$work/bin:/usr/bin:/bin"
check "a new one is used" $?

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
