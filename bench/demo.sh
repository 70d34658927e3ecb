#!/usr/bin/env bash
# Shows hawser at work in this host's unmodified Open MPI: a checked ring of 2 ranks that hawser
# serves, then the ping-pong, hawser beside the host's own OFI MTL. Takes under three minutes.

root=$(cd "$(dirname "$0")/.." && pwd -P)
. "$root/bench/host.sh"

output=$results/demo.out

# Both the framework's and the common code's output: one of the two names the provider.
mpirun_command hawser "$own_provider" 2
command+=(--mca mtl_base_verbose 1 --mca opal_common_ofi_verbose 1)
compile ring
command+=("$results/ring")

echo "Host: $host, $(mpirun --version | head -n 1), libfabric $(fi_info --version |
    sed -n 's/^libfabric: //p')"
echo "Command: $(printf '%q ' "${command[@]}")"
echo
timeout 60 "${command[@]}" >"$output" 2>"$output.err" || {
    cat "$output" "$output.err" >&2
    die "the ring failed"
}

chosen=$(sed -n 's/.*mtl:ofi:prov: *//p' "$output" "$output.err" | sort -u | paste -sd ' ')
echo "Provider: ${chosen:-$own_provider, the only one that the command allows}"
cat "$output"
[ "$(grep -cF "served by $root/" "$output")" = 2 ] || die "hawser does not serve both ranks"
grep -q ', 0 wrong$' "$output" || die "the ring's result is missing"

echo
echo "Ping-pong, hawser beside stock:"
"$root/bench/run.sh" --host "$host" --providers "$own_provider" --quick

echo
echo "demo: success: hawser served both ranks over $own_provider, and every message was right"
