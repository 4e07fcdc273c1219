#!/usr/bin/env bash
# Checks that the crates can be published and used. Packages every crate that is not marked `publish = false`.
#
#   check-packages.sh           only package the crates: some seconds
#   check-packages.sh --build   also do a dry run of publishing, which builds each package, build the
#                               docs of each crate with the features that docs.rs uses, and build a
#                               project outside of the workspace against the packages, with default
#                               features and without: some minutes
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")

# The name and version of each crate that is published, and the features with which docs.rs builds its docs.
published() {
    cargo metadata --no-deps --format-version 1 | python3 -c '
import json, sys
for package in json.load(sys.stdin)["packages"]:
    if package["publish"] != []:
        docs = ((package["metadata"] or {}).get("docs") or {}).get("rs", {})
        features = "--features=" + ",".join(docs.get("features", []))
        features = "--all-features" if docs.get("all-features") else features
        print(package["name"], package["version"], features)'
}

mapfile -t crates < <(published)
selected=()
for crate in "${crates[@]}"; do selected+=(--package "${crate%% *}"); done

cargo package --quiet --allow-dirty --no-verify "${selected[@]}"
printf 'packaged: %s\n' "${crates[@]%% --*}"
[[ ${1:-} == --build ]] || exit 0

# k8s-openapi does not build without a version of the API. Programs choose one; a package of a library has none.
export K8S_OPENAPI_ENABLED_VERSION=1.37
cargo publish --dry-run --allow-dirty "${selected[@]}"
project=$(mktemp -d)
trap 'rm -rf "$project"' EXIT
mkdir "$project/src"
cat > "$project/Cargo.toml" <<'TOML'
[package]
name = "outside"
edition = "2024"

[features]
default = ["pleg/default"]

[dependencies]
pleg = { version = "0.3", default-features = false, features = ["fake"] }
tokio = { version = "1", features = ["macros", "rt"] }

[patch.crates-io]
TOML
for crate in "${crates[@]}"; do
    read -r name version features <<< "$crate"
    [[ $name != pleg-cli ]] || continue
    # One crate alone, because cargo would add the features that other crates need.
    RUSTDOCFLAGS="-D warnings" cargo doc --quiet --no-deps --package "$name" "$features"
    tar -xzf "$target/package/$name-$version.crate" -C "$project"
    echo "$name = { path = \"$name-$version\" }" >> "$project/Cargo.toml"
done
cat > "$project/src/main.rs" <<'RUST'
use pleg::core::ReportedState;
use pleg::runtime::fake::{self, FakeRuntime};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = FakeRuntime::new();
    let mut builder = pleg::Pleg::builder(runtime.clone());
    let mut events = builder.subscribe();
    let pleg = builder.spawn()?;
    pleg.wait_until_synced().await?;
    runtime.put(fake::sandbox("uid", "sandbox", ReportedState::Running));
    while let Some(delivery) = events.next().await {
        if let pleg::Delivery::Event(event) = delivery {
            println!("{} {}", event.event, event.uid);
            pleg.shutdown().await;
            return Ok(());
        }
    }
    Err("no event".into())
}
RUST
for features in "" --no-default-features; do
    # shellcheck disable=SC2086 # Without features, no argument.
    CARGO_TARGET_DIR="$target/outside" timeout 900 cargo run --quiet --manifest-path "$project/Cargo.toml" $features
done
echo "a project outside of the workspace works with the packages"
