#!/usr/bin/env bash
# Threads that race for the cell of src/sync, and two at the ends of a ring of src/shm, under ThreadSanitizer. Needs a nightly compiler; its standard
# library need not be instrumented (tests/tsan/race.rs says why).
#
#     tests/tsan.sh [ROUNDS]      a cell each; 2000
#
# The last line is `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 2
PATH=$(tests/setup.sh path)

if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "ThreadSanitizer: not run, there is no nightly compiler (rustup toolchain install nightly)"
    exit 0
fi
triple=$(rustc -vV | sed -n 's/^host: //p')
log=target/tsan/race.log
mkdir -p target/tsan
if ! CARGO_TARGET_DIR=target/tsan RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" \
    cargo +nightly build --release --locked --target "$triple" --manifest-path tests/tsan/Cargo.toml; then
    echo "not ok the race compiles"
    echo "0 passed, 1 failed"
    exit 1
fi
passed=0 failed=0
# run PROGRAM [ARGUMENT]
run() {
    if "target/tsan/$triple/release/$1" "${@:2}" >"$log" 2>&1; then
        echo "ok $1: $(tail -n 1 "$log")"
        passed=$((passed + 1))
    else
        echo "not ok $1"
        head -n 40 "$log" | sed 's/^/    | /'
        failed=$((failed + 1))
    fi
}
run race "${1-2000}"
run ring
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
