#!/usr/bin/env bash
# A short real run of all of bench/, and its page in headless Chromium: every plot is loaded, in light and in dark, the
# console stays empty, nothing is large. Takes five minutes on a quiet machine, and what `make bench` has measured before.
#
#     tests/report/browser.sh [FOLDER]      FOLDER: the page that is there already, and no run
#
# Needs Chromium, gnuplot, and target/mca (`make stage`). Logs lie in target/c-tests/report. The last line is
# `N passed, N failed`.
set -u
cd "$(dirname "$0")/../.." || exit 2

. c-tests/host.sh

work=$PWD/target/c-tests/report
rm -rf "$work"
mkdir -p "$work" || exit 2
log=$work/run
command -v chromium >/dev/null || give_up "Chromium is there (tests/setup.sh whole)"

page=${1:-target/bench/report}
if [ $# = 0 ]; then
    # A run that is too slow is another run's matter: this is about its page.
    bench/whole.sh --quick >"$log" 2>&1
    check "a short run of everything ends well" $?
fi
[ -s "$page/index.html" ] || give_up "there is a page"

# opened FILE OPTION…: opens it; what the console and the options say is in $log, what is written in $work/out.
opened() {
    local status
    log=$work/$(basename "$1" .html).log
    c-tests/patience.sh 120 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
        --disable-background-networking --disable-component-update --disable-sync --hide-scrollbars \
        --user-data-dir="$work/profile" --enable-logging=stderr --window-size=1400,2400 "${@:2}" "file://$1" >"$work/out" 2>"$work/err" </dev/null
    status=$?
    # What it looks for on a desk is not of interest.
    grep -avE 'dbus|DBus' "$work/err" >"$log"
    return $status
}
# console: what the console of the last page said.
console() { grep -aE 'CONSOLE[:(]' "$log"; }

# images FOLDER OPTION…: sets `is` to how many images of its page are loaded, `N of N`, by a script at the end of a copy of
# the page, which itself has none and allows none.
images() {
    {
        sed '/http-equiv="Content-Security-Policy"/d' "$1/index.html"
        cat <<'SCRIPT'
<script>
addEventListener("load", () => {
    const all = [...document.images];
    const loaded = all.filter(image => image.complete && image.naturalWidth > 0);
    document.body.dataset.loaded = loaded.length + " of " + all.length;
});
</script>
SCRIPT
    } >"$1/looked-at.html"
    opened "$1/looked-at.html" --dump-dom "${@:2}"
    is=$(grep -ao 'data-loaded="[^"]*"' "$work/out" | cut -d '"' -f 2)
}

copy=$work/page
cp -r "$page" "$copy"
wanted=$(grep -o '<img ' "$copy/index.html" | wc -l)
check "it has plots: $wanted" "$([ "$wanted" -gt 0 ]; echo $?)"
dark=--blink-settings=preferredColorScheme=0
for theme in light dark; do
    options=()
    [ $theme = light ] || options=($dark)
    opened "$copy/index.html" --screenshot="$work/$theme.png" ${options[@]+"${options[@]}"}
    check "$theme: the page opens" $?
    check "$theme: and is drawn" "$([ "$(stat -c %s "$work/$theme.png")" -gt 20000 ]; echo $?)"
    ! console
    check "$theme: the console says nothing" $?
    images "$copy" ${options[@]+"${options[@]}"}
    check "$theme: every plot is loaded: $is" "$([ "$is" = "$wanted of $wanted" ]; echo $?)"
done
! cmp -s "$work/light.png" "$work/dark.png"
check "dark is another drawing than light" $?
check "the page is less than a megabyte" "$([ "$(stat -c %s "$copy/index.html")" -lt 1000000 ]; echo $?)"
check "and all of it less than eight" "$([ "$(du -s --apparent-size --block-size=1 "$copy" | cut -f 1)" -lt 8000000 ]; echo $?)"
opened "$copy/index.html" --no-pdf-header-footer --print-to-pdf="$work/page.pdf"
check "it can be printed" "$([ "$(head -c 4 "$work/page.pdf")" = %PDF ]; echo $?)"

# What would be seen if it were otherwise.
mv "$copy/$(grep -ao '<img src="[^"]*"' "$copy/index.html" | sed -n '1s/.*="\(.*\)"/\1/p')" "$work/"
images "$copy"
check "a plot that is missing is noticed: $is" "$([ "$is" = "$((wanted - 1)) of $wanted" ]; echo $?)"
sed 's#</head>#<script src="https://example.invalid/x.js"></script></head>#' "$page/index.html" >"$copy/else.html"
opened "$copy/else.html" --dump-dom
console | grep -q 'Content Security Policy'
check "what would come from elsewhere is refused, and noticed" $?
sum
