# What people do here. `just` lists it.

set shell := ["bash", "-euo", "pipefail", "-c"]

# List the recipes.
default:
    @just --list --unsorted

# Watch the pods of this node's runtime, or of the embedded one.
watch *ARGS:
    cargo run --release --bin pleg -- watch {{ ARGS }}

# All tests but those that need a real container runtime.
test:
    cargo test --workspace

# The tests on private containerds, 1.7 and 2 (needs root on Linux; fetches Debian's packages).
test-real *ARGS:
    cargo test -p pleg-tests --features containerd --test containerd -- --test-threads=4 --nocapture {{ ARGS }}

# Formatting, lints, docs, spelling, licences, and which room may use what.
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --all-features -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
    scripts/check-rooms.sh
    typos
    cargo deny --log-level error check bans licenses sources

# Format what was written.
fmt:
    cargo fmt --all

# Write the generated wire types anew from proto/.
codegen:
    PLEG_BLESS=1 cargo test -p pleg-cri --test codegen

# Everything that CI does, on this machine.
ci:
    bash .ci/run
