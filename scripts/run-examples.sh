#!/usr/bin/env bash
# Runs the example of each library crate, with a simulated runtime if it needs one. `cargo test --workspace`
# builds the examples; otherwise `cargo build --workspace --examples --bin pleg`.
set -euo pipefail
built="${CARGO_TARGET_DIR:-target}/debug"
directory="$(mktemp -d)"
trap 'kill "$sim" 2>/dev/null || true; rm -rf "$directory"' EXIT

"$built/pleg" sim --socket "$directory/cri.sock" &
sim=$!
for _ in $(seq 100); do
    [ -S "$directory/cri.sock" ] && break
    sleep 0.1
done

run() {
    echo "-- $*"
    timeout 60 "$built/examples/$1" "${@:2}" >"$directory/out" || { cat "$directory/out"; echo "the example $1 failed"; exit 1; }
    tail -n 3 "$directory/out"
}
run own_runtime
run list
run stream
run pods "unix://$directory/cri.sock"
run events "unix://$directory/cri.sock" 5
