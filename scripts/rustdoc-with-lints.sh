#!/usr/bin/env bash
# Replaces rustdoc in `cargo test` (RUSTDOC): builds the docs of a crate with warnings denied, then runs the examples.
# `cargo doc` could deny the same warnings, but would check every dependency again. RUSTC_BOOTSTRAP=1: only then does
# rustdoc compare the error code of a `compile_fail` example.
set -euo pipefail
args=()
skip=0
for arg in "$@"; do
    if ((skip)); then
        skip=0
        continue
    fi
    case $arg in
    --test) ;;
    --test-run-directory | --test-args) skip=1 ;;
    *) args+=("$arg") ;;
    esac
done
docs=$(mktemp -d)
trap 'rm -rf "$docs"' EXIT
rustdoc "${args[@]}" --out-dir "$docs" -Dwarnings
RUSTC_BOOTSTRAP=1 rustdoc "$@"
