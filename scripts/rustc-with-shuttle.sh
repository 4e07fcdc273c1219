#!/bin/sh
# The compiler of `just shuttle` (RUSTC_WORKSPACE_WRAPPER). Builds the crates of this workspace with
# `--cfg shuttle`, and shares their dependencies with all other builds.
exec "$@" --cfg shuttle
