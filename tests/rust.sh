#!/usr/bin/env bash
# All of `cargo test`. What computes for long are the simulations and what visits every state of a protocol: both are compiled with
# all optimization, which costs less than it gives back.
#
#     tests/rust.sh
set -u
cd "$(dirname "$0")/.." || exit 2
PATH=$(tests/setup.sh path)

status=0
cargo test --profile checked --lib --bins --examples --test '*' --no-fail-fast || status=1
cargo test --profile checked --doc || status=1
exit $status
