#!/bin/sh
# The compiler of `just shuttle` (RUSTC_WORKSPACE_WRAPPER): the crates of this workspace are built
# with `--cfg shuttle`, what they depend on is shared with all other builds.
exec "$@" --cfg shuttle
