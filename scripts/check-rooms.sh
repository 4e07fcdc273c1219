#!/usr/bin/env bash
# Holds the rule of ARCHITECTURE.md: arrows go down only. A room may use the rooms below it and no
# others; the core knows no tokio, and no wire type reaches core, runtime or pleg without features.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=0
complain() { echo "check-rooms: $*" >&2; failed=1; }

# What a package links in the end, features and all.
tree() { cargo tree --quiet --edges normal --prefix none --format '{p}' "$@" | awk '{print $1}' | sort -u; }

# Room: the rooms that it may use.
declare -A may=(
    [pleg-core]=""
    [pleg-runtime]="pleg-core"
    [pleg-cri]="pleg-core pleg-runtime"
    [pleg-generic]="pleg-core pleg-runtime"
    [pleg-evented]="pleg-core pleg-runtime"
    [pleg]="pleg-core pleg-runtime pleg-cri pleg-generic pleg-evented"
    [pleg-sim]="pleg-core pleg-runtime pleg-cri"
    [pleg-proof]="pleg-core pleg-runtime pleg-generic"
    [pleg-fuzz]="pleg-core pleg-runtime pleg-cri"
    [rivals]="pleg-core pleg-runtime pleg-generic pleg-evented pleg"
)
for room in "${!may[@]}"; do
    for used in $(tree --package "$room" --all-features | grep -E '^pleg(-|$)' | grep -vx "$room"); do
        [[ " ${may[$room]} " == *" $used "* ]] || complain "$room must not use $used"
    done
done

for room in pleg-core pleg-runtime pleg-generic pleg-evented pleg; do
    for wire in $(tree --package "$room" --no-default-features | grep -E '^(tonic|prost|hyper|h2)(-|$)' || true); do
        complain "$room without features must not link $wire"
    done
done
# Whoever runs a rival does so on purpose.
for room in pleg-core pleg-runtime pleg-cri pleg-generic pleg-evented pleg pleg-sim pleg-cli; do
    if tree --package "$room" --all-features | grep -qx rivals; then
        complain "$room must not use the rivals"
    fi
done
for used in $(tree --package pleg-core --all-features | grep -E '^(tokio|futures|async-)' || true); do
    complain "pleg-core must not link $used"
done

# The simulator is a runtime, not a generator: it shares no idea of order or merging with the core.
if grep -rnE 'pleg_core|runtime::core' crates/pleg-sim/src; then
    complain "pleg-sim must not use the core"
fi
# The proof shares no idea of order or merging with what it proves.
if grep -rnE 'pleg_core::(order|record|belief|lifecycle|graves)::' crates/pleg-proof; then
    complain "pleg-proof must not use the core's own rules"
fi
# One file reads the clock; the command that runs simulated worlds times itself.
if grep -rnE '(Instant|SystemTime)::now\(' crates --include='*.rs' \
    | grep -vE '^crates/(pleg-runtime/src/clock|pleg-proof/src/bin/simulate).rs:'; then
    complain "only crates/pleg-runtime/src/clock.rs reads a clock"
fi

[ "$failed" -eq 0 ] && echo "rooms: arrows go down only"
exit "$failed"
