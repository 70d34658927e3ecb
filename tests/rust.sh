#!/usr/bin/env bash
# All of `cargo test`, in two parts, because compiling takes several times as long as running: what is
# beside the code is compiled once more with little optimization, and only what computes for long, the
# simulations, with all.
#
#     tests/rust.sh
set -u
cd "$(dirname "$0")/.." || exit 2
PATH=$(tests/setup.sh path)

status=0
cargo test --profile checked --lib || status=1
export CARGO_PROFILE_CHECKED_OPT_LEVEL=3
cargo test --profile checked --bins --examples --test '*' || status=1
cargo test --profile checked --doc || status=1
exit $status
