# Tasks of developers. `just` lists them.

set shell := ["bash", "-euo", "pipefail", "-c"]

# List the recipes.
default:
    @just --list --unsorted

# Watch the pods of this node's container runtime, or of the simulated runtime that `pleg` contains.
[group('look')]
watch *ARGS:
    cargo run --release --bin pleg -- watch {{ ARGS }}

# Write what `pleg top` shows of a simulated node with a hung pod into README.md (needs tmux).
[group('look')]
capture:
    cargo build --bin pleg
    scripts/capture-top.py

# Write screenshots of the web page of `pleg agent` to docs/images (needs chromium-headless-shell).
[group('look')]
screenshots:
    mkdir -p docs/images
    PLEG_IMAGES="$PWD/docs/images" cargo test --workspace --test suite -- --ignored --nocapture page::screenshots

# All tests except those that need a real container runtime.
[group('test')]
test:
    cargo test --workspace

real := "cargo test --workspace --features pleg-tests/containerd,api-kubelet/containerd --test containerd -- --nocapture"

# (The tests of `pleg doctor` run after the others, because it also judges the load of the machine.)
# Run the tests that start their own containerd daemons, 1.7 and 2 (needs root on Linux; downloads Debian's packages).
[group('test')]
test-real *ARGS: _static-pods
    {{ real }} --test-threads=4 {{ if ARGS == "" { "--skip doctor::" } else { ARGS } }}
    {{ if ARGS == "" { real + " doctor::" } else { "true" } }}

# Test the mini-kubelet on containerd 1.7 and 2: 50 pods crash 1,000 times while the test kills containerd and kubelet.
[group('test')]
test-kubelet *ARGS="static_pods::crashes": _static-pods
    PLEG_KUBELET_PODS="${PLEG_KUBELET_PODS:-50}" PLEG_KUBELET_RESTARTS="${PLEG_KUBELET_RESTARTS:-1000}" \
    PLEG_KUBELET_DAEMON_KILLS="${PLEG_KUBELET_DAEMON_KILLS:-10}" PLEG_KUBELET_OWN_KILLS="${PLEG_KUBELET_OWN_KILLS:-5}" \
        {{ real }} --include-ignored --test-threads=1 {{ ARGS }}

# Test the kubelet that gets its pods from an API server, on containerd 2: 30 pods crash 500 times amid kills.
[group('test')]
test-api-kubelet PODS="30" RESTARTS="500":
    PLEG_API_PODS={{ PODS }} PLEG_API_RESTARTS={{ RESTARTS }} \
        cargo test -p api-kubelet --features containerd --test containerd -- --nocapture

# Check that `pleg doctor` and an agent report no warning and nothing critical on a healthy containerd under load.
[group('test')]
examine-healthy RUNS="50" SECONDS="20": _static-pods
    PLEG_DOCTOR_RUNS={{ RUNS }} PLEG_DOCTOR_SECONDS={{ SECONDS }} \
        {{ real }} --include-ignored doctor::healthy

# Cause each problem that `pleg doctor` can name on containerd 2, and check that doctor names it (needs root).
[group('test')]
plant-troubles: _static-pods
    {{ real }} --include-ignored doctor::every

# Measure memory, descriptors and tasks of the mini-kubelet on containerd 2 while pods crash for MINUTES.
[group('test')]
soak-kubelet MINUTES="120": _static-pods
    PLEG_KUBELET_MINUTES={{ MINUTES }} \
        {{ real }} --include-ignored static_pods::mini_kubelet_leaks

# Measure the figures of docs/fleet.md: a release build of the agent when idle, when many containers exit at once,
# and when clients flood it (needs root).
[group('measure')]
measure-agent MINUTES="5":
    #!/usr/bin/env bash
    set -euo pipefail
    cargo build --profile dist -p pleg-cli --bin pleg
    export PLEG_PROGRAM="$(realpath "${CARGO_TARGET_DIR:-target}/dist/pleg")" PLEG_IDLE_MINUTES={{ MINUTES }}
    cargo test -p pleg-cli --test suite -- --include-ignored --nocapture --test-threads=1 measure:: agent_flood::
    {{ real }} --ignored agent::

# (Building the tests also builds the programs that they start, such as `static-pods`, with the same features.)
_static-pods:
    cargo test --workspace --features pleg-tests/containerd,api-kubelet/containerd --test suite --no-run

# Build the container image: a static program, and the OCI archive that contains it.
[group('deploy')]
image ARCHIVE="target/pleg-image.tar":
    RUSTFLAGS="-C target-feature=+crt-static" \
        cargo build --profile dist --locked -p pleg-cli --bin pleg --target "$(rustc --print host-tuple)"
    scripts/image.py "${CARGO_TARGET_DIR:-target}/$(rustc --print host-tuple)/dist/pleg" {{ ARCHIVE }}

# Build a release in target/release-files: static program, Debian package, image, checksums (installs cargo-deb).
[group('deploy')]
release:
    #!/usr/bin/env bash
    set -euo pipefail
    command -v cargo-deb >/dev/null || cargo install --quiet --locked --debug cargo-deb
    rm -rf target/dist-files target/release-files
    mkdir -p target/dist-files target/release-files
    just image target/release-files/pleg-image.tar
    host="$(rustc --print host-tuple)" program="${CARGO_TARGET_DIR:-target}/$(rustc --print host-tuple)/dist/pleg"
    cp "$program" target/dist-files/pleg
    "$program" man target/dist-files/man
    "$program" completions bash > target/dist-files/pleg.bash
    "$program" completions zsh > target/dist-files/_pleg
    "$program" completions fish > target/dist-files/pleg.fish
    sed 's|/usr/local/bin/pleg|/usr/bin/pleg|' deploy/systemd/pleg-agent.service > target/dist-files/pleg-agent.service
    cargo deb --quiet --no-build --no-strip --profile dist --target "$host" --package pleg-cli --output target/release-files/
    cp deploy/systemd/pleg-agent.service deploy/agent.toml target/dist-files
    tar -C target/dist-files -czf "target/release-files/pleg-$host.tar.gz" .
    (cd target/release-files && sha256sum -- * > SHA256SUMS && cat SHA256SUMS)

# Run at full length the tests that CI shortens, on both versions of containerd (needs root).
[group('test')]
test-long: _static-pods
    PLEG_STRESS_COMPLETIONS=120 PLEG_FRESH_ROUNDS=50 PLEG_BOTH_VERSIONS=1 \
        {{ real }} --test-threads=2 kep3386 churn

# Do everything that publishing the crates does except the upload, build the docs as docs.rs does, and use the packages elsewhere.
[group('check')]
package:
    scripts/check-packages.sh --build

# Build projects outside of this workspace that use kube 3, 4 and 5 and pass pods to pleg-kubelet as JSON.
[group('check')]
other-kube:
    scripts/other-kube.sh

# Serve a simulated runtime: `just sim --socket /tmp/cri.sock --mode crio --chaos drop=5%`.
[group('look')]
sim *ARGS:
    cargo run --release --bin pleg -- sim {{ ARGS }}

# Run one random world of the proof and print its trace.
[group('prove')]
world SEED:
    cargo run --release --quiet -p pleg-proof --bin soak -- {{ SEED }}

# Run random worlds with new seeds for MINUTES on two cores. Prints the totals of all such runs of this commit.
[group('prove')]
soak MINUTES FROM=`date +%s000000`:
    #!/usr/bin/env bash
    set -euo pipefail
    cargo build --release --quiet -p pleg-proof
    log="target/soak-$(git rev-parse --short HEAD).log"
    from={{ FROM }} end=$((SECONDS + 60 * {{ MINUTES }}))
    while ((SECONDS < end)); do
        "${CARGO_TARGET_DIR:-target}/release/soak" "$from" 20000 | tee -a "$log" | grep -E '^seed|^never|worlds, '
        from=$((from + 20000))
    done
    awk '/ worlds, .* simulated events/ { worlds += $1; events += $3; failures += $(NF - 1) }
        END { printf "%d worlds, %d simulated events, %d failures\n", worlds, events, failures }' "$log"

# Run the random worlds of CI, some 15 million simulated events. Fails if some fault or state transition never occurs.
[group('prove')]
worlds-ci:
    # With the features of the whole workspace, as in `cargo test --workspace`, so that cargo builds nothing twice.
    cargo test --quiet --workspace --test worlds --no-run
    "${CARGO_TARGET_DIR:-target}/debug/soak" 0 9000

# Explore every order of events in the small worlds.
[group('prove')]
explore:
    cargo run --release --quiet -p pleg-proof --bin explore

# Plant seeded bugs in a copy of the core and check that the tests catch each (half an hour; resumes where it stopped).
[group('prove')]
seeded *ARGS:
    scripts/seeded.py {{ ARGS }}

# (The core is not optimised, because that would cost more compile time than it saves in these tests.)
# Explore interleavings of the driver with its consumers, under shuttle.
[group('prove')]
shuttle SCHEDULES="10000":
    PLEG_SCHEDULES={{ SCHEDULES }} RUSTC_WORKSPACE_WRAPPER={{ justfile_directory() }}/scripts/rustc-with-shuttle.sh cargo --config profile.dev.package.pleg-core.opt-level=0 test -p pleg --no-default-features --lib interleavings

# Measure the share of lines that tests execute (20 minutes; installs cargo-llvm-cov and apt's LLVM).
[group('prove')]
coverage:
    #!/usr/bin/env bash
    set -euo pipefail
    major="$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')"
    command -v "llvm-cov-$major" >/dev/null || apt-get install -q -y --no-install-recommends "llvm-$major"
    command -v cargo-llvm-cov >/dev/null || cargo install --quiet --locked --debug cargo-llvm-cov
    export LLVM_COV="$(command -v "llvm-cov-$major")" LLVM_PROFDATA="$(command -v "llvm-profdata-$major")"
    cargo llvm-cov --workspace --summary-only

# Check that each library crate's public API names only allowed crates (five minutes).
[group('check')]
public-dependencies:
    scripts/public-dependencies.py

# Show changes of the public API since the first release, 8862f5d (installs cargo-semver-checks; two minutes).
[group('check')]
semver BASE="8862f5d":
    command -v cargo-semver-checks >/dev/null || cargo install --quiet --locked --debug cargo-semver-checks
    cargo semver-checks --baseline-rev {{ BASE }} -p pleg-core -p pleg-runtime -p pleg-cri -p pleg-generic -p pleg-evented -p pleg -p pleg-sim

# Find mutants of the core that no test catches (installs cargo-mutants; hours).
[group('prove')]
mutants *ARGS:
    command -v cargo-mutants >/dev/null || cargo install --quiet --locked --debug cargo-mutants
    cargo mutants --package pleg-core {{ ARGS }}

# Check that every crate compiles with every combination of its features (installs cargo-hack; two minutes).
[group('check')]
features:
    command -v cargo-hack >/dev/null || cargo install --quiet --locked --debug cargo-hack
    cargo hack check --quiet --workspace --exclude pleg-kubelet --exclude static-pods --exclude api-kubelet --feature-powerset --no-dev-deps
    # k8s-openapi compiles only if a feature selects the version of the Kubernetes API, so check this crate with one.
    cargo check --quiet -p pleg-kubelet --features latest

# Compare with ports of two PLEGs of Kubernetes for 25 minutes; writes docs/benchmarks.md, its plots and README's table.
[group('measure')]
bench *ARGS: (_bench "run" ARGS)

# Like `bench`, in four minutes, with page and README in target/bench-quick: shows the order of magnitude of the results.
[group('measure')]
bench-quick *ARGS: _bench-build
    mkdir -p target/bench-quick && cp README.md target/bench-quick
    "${CARGO_TARGET_DIR:-target}"/dist/bench quick --out target/bench-quick/quick.jsonl {{ ARGS }}
    scripts/benchmarks.py --results target/bench-quick --docs target/bench-quick --readme target/bench-quick/README.md

# Like `bench`, on several real containerd daemons that run side by side (needs root on Linux, 4 GB; 20 minutes).
[group('measure')]
bench-real *ARGS: (_bench "real" ARGS)

_bench-build:
    cargo build --profile dist -p pleg-benches

_bench MODE *ARGS: _bench-build
    "${CARGO_TARGET_DIR:-target}"/dist/bench {{ MODE }} {{ ARGS }}
    scripts/benchmarks.py --prune

# Generate docs/benchmarks.md, its plots and README's table from benches/results.
[group('measure')]
benchmarks-page:
    scripts/benchmarks.py

# Count the instructions of the hot paths and compare them with the committed counts (needs valgrind).
[group('measure')]
instructions *ARGS:
    scripts/instructions.py {{ ARGS }}

# Check formatting, lints, docs, spelling, licences, and the layers of crates.
[group('check')]
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --all-features -- -D warnings
    just docs
    scripts/check-layers.sh
    scripts/check-core.py crates/pleg-core/src
    typos
    scripts/check-words.py
    command -v cargo-deny >/dev/null || cargo install --quiet --locked --debug cargo-deny
    cargo deny --log-level error check bans licenses sources

# (With `--examples` cargo uses the features of dev-dependencies, as for the lints, so it need not build the
# dependencies a second time. `--bins` would write the docs of the command `pleg` over those of the crate `pleg`.)
# Build the reference of all crates with cargo doc.
[group('check')]
docs:
    RUSTDOCFLAGS="-D warnings" cargo doc --quiet --workspace --no-deps --all-features --lib --examples --bin bench --bin bench-counting

# Build the book of docs/ in target/book, and check every link and anchor in the repository.
[group('check')]
book:
    mdbook build docs
    lychee --offline --include-fragments --no-progress --quiet --exclude-path 404.html '*.md' 'docs/**/*.md' 'crates/*/README.md' target/book

# Draw docs/diagrams (needs graphviz).
[group('check')]
diagrams:
    for file in docs/diagrams/*.dot; do dot -Tsvg "$file" -o "${file%.dot}.svg"; done

# Format the code.
[group('check')]
fmt:
    cargo fmt --all

# Generate the wire types from proto/.
[group('check')]
codegen:
    PLEG_BLESS=1 cargo test -p pleg-cri --test suite codegen

# Everything that CI does, on this machine.
[group('check')]
ci:
    bash .ci/run
