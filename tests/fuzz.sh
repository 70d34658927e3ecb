#!/usr/bin/env bash
# Fuzzes each parser and the receive path with libFuzzer, led by what the code does with the bytes, on
# the stable compiler. What it finds beyond fuzz/corpus stays in target/fuzz.
#
#     tests/fuzz.sh [RUNS]      of each parser, a twentieth of it of the receive paths; 1000000
#
# An input that makes a target panic is named, and belongs into fuzz/corpus with the fix. The last line
# is `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 2
PATH=$(tests/setup.sh path)

runs=${1:-1000000} passed=0 failed=0
triple=$(rustc -vV | sed -n 's/^host: //p')
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
coverage="$coverage -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"

# With little optimization: compiling takes longer than fuzzing. With a target, because the flags are not for build scripts.
if ! CARGO_TARGET_DIR=target/fuzz CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CXX=clang++ RUSTFLAGS="--cfg fuzzing $coverage -Ccodegen-units=1 -Cdebug-assertions" \
    cargo build --release --locked --target "$triple" --manifest-path fuzz/Cargo.toml; then
    echo "not ok the targets compile"
    echo "0 passed, 1 failed"
    exit 1
fi
for source in fuzz/fuzz_targets/*.rs; do
    name=$(basename "$source" .rs)
    found=target/fuzz/corpus/$name log=target/fuzz/$name.log count=$runs
    case $name in receive | sealed) count=$((runs / 20)) ;; esac
    mkdir -p "$found"
    if "target/fuzz/$triple/release/$name" -runs="$count" -seed=1 -max_len=4096 -artifact_prefix="target/fuzz/$name-" "$found" "fuzz/corpus/$name" >"$log" 2>&1; then
        passed=$((passed + 1))
        echo "ok $name: $(sed -n 's/^\(Done .*\)/\1/p' "$log")"
    else
        failed=$((failed + 1))
        echo "not ok $name"
        tail -n 40 "$log" | sed 's/^/    | /'
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
