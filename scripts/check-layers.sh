#!/usr/bin/env bash
# Checks the layers of ARCHITECTURE.md: a crate uses only crates below it; the core does not use tokio; and pleg-core,
# pleg-runtime and (without its features) pleg link no crate of wire types.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=0
error() { echo "check-layers: $*" >&2; failed=1; }

# Lists all packages that a package links with the given features.
tree() { cargo tree --quiet --edges normal --prefix none --format '{p}' "$@" | awk '{print $1}' | sort -u; }

# Each crate, and the crates that it may use.
declare -A may=(
    [pleg-core]=""
    [pleg-runtime]="pleg-core"
    [pleg-cri]="pleg-core pleg-runtime"
    [pleg-generic]="pleg-core pleg-runtime"
    [pleg-evented]="pleg-core pleg-runtime"
    [pleg]="pleg-core pleg-runtime pleg-cri pleg-generic pleg-evented"
    [pleg-kubelet]="pleg-core pleg-runtime pleg-cri pleg-generic pleg-evented pleg"
    [static-pods]="pleg-core pleg-runtime pleg-cri pleg-generic pleg-evented pleg pleg-kubelet"
    [api-kubelet]="pleg-core pleg-runtime pleg-cri pleg-generic pleg-evented pleg pleg-kubelet"
    [pleg-sim]="pleg-core pleg-runtime pleg-cri pleg-node-model"
    [pleg-node-model]=""
    [pleg-proof]="pleg-core pleg-node-model"
    [rivals]="pleg-core pleg-runtime pleg-generic pleg-evented pleg"
)
for crate in "${!may[@]}"; do
    for used in $(tree --package "$crate" --all-features | grep -E '^pleg(-|$)' | grep -vx "$crate"); do
        [[ " ${may[$crate]} " == *" $used "* ]] || error "$crate must not use $used"
    done
done

for crate in pleg-core pleg-runtime pleg-generic pleg-evented pleg; do
    for wire in $(tree --package "$crate" --no-default-features | grep -E '^(tonic|prost|hyper|h2)(-|$)' || true); do
        error "$crate without features must not link $wire"
    done
done
# The ports of upstream's faulty generators are for comparison only, so no crate of the product may use them.
for crate in pleg-core pleg-runtime pleg-cri pleg-generic pleg-evented pleg pleg-kubelet static-pods api-kubelet pleg-sim pleg-cli; do
    if tree --package "$crate" --all-features | grep -qx rivals; then
        error "$crate must not use the rivals"
    fi
done
for used in $(tree --package pleg-core --all-features | grep -E '^(tokio|futures|async-)' || true); do
    error "pleg-core must not link $used"
done

# The simulator is a runtime, not a generator: it does not use the core's rules for order and merging.
if grep -rnE 'pleg_core|runtime::core' crates/pleg-sim/src; then
    error "pleg-sim must not use the core"
fi
# The node model follows the source code of the runtimes, not the core's table of quirks: if it used the table, a wrong
# entry would be wrong in the model and in the core, and no test would fail.
if grep -rn 'quirk' crates/pleg-node-model/src; then
    error "pleg-node-model must not use the quirks of the product"
fi
# Only one file may read the clock.
if grep -rnE '(Instant|SystemTime)::now\(' crates --include='*.rs' \
    | grep -vE '^crates/pleg-runtime/src/clock.rs:'; then
    error "only crates/pleg-runtime/src/clock.rs reads a clock"
fi

[ "$failed" -eq 0 ] && echo "layers: every dependency points down"
exit "$failed"
