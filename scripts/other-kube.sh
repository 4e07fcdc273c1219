#!/usr/bin/env bash
# Builds projects outside of this workspace with kube 3, 4 and 5, which use another k8s-openapi than pleg-kubelet. They
# pass pods and statuses as JSON.
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$root/target}/other-kube"

# The versions of kube, and of the k8s-openapi that each needs.
for versions in "3 0.27" "4 0.28" "5 0.29"; do
    read -r kube openapi <<<"$versions"
    project="$CARGO_TARGET_DIR/kube-$kube"
    mkdir -p "$project/src"
    cat >"$project/Cargo.toml" <<EOF
[package]
name = "with-kube-$kube"
edition = "2024"

[workspace]

[dependencies]
k8s-openapi = { version = "$openapi", features = ["latest"] }
kube = { version = "$kube", default-features = false }
pleg-kubelet = { path = "$root/crates/pleg-kubelet", features = ["latest"] }
serde = "1"
serde_json = "1"
EOF
    cat >"$project/src/main.rs" <<'EOF'
use k8s_openapi::api::core::v1::PodStatus;
use kube::core::DynamicObject;
use pleg_kubelet::k8s_openapi::api::core::v1 as of_pleg;
use serde::{Serialize, de::DeserializeOwned};

fn through_json<A: Serialize, B: DeserializeOwned>(of: &A) -> serde_json::Result<B> {
    serde_json::from_value(serde_json::to_value(of)?)
}

fn main() -> serde_json::Result<()> {
    // A watch of kube delivers a DynamicObject, with the fields that kube's own Pod does not know.
    let pod: DynamicObject = serde_json::from_value(serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "app", "image": "app:1"}], "hostnameOverride": "other"},
    }))?;
    let pod: of_pleg::Pod = through_json(&pod)?;
    let refused: Vec<_> = pleg_kubelet::unsupported(&pod).into_iter().map(|error| error.field).collect();
    assert_eq!(refused, ["spec.hostnameOverride"]);
    let status = of_pleg::PodStatus { phase: Some("Running".to_owned()), ..Default::default() };
    let status: PodStatus = through_json(&status)?;
    assert_eq!(status.phase.as_deref(), Some("Running"));
    Ok(())
}
EOF
    echo "kube $kube with k8s-openapi $openapi"
    cargo run --quiet --manifest-path "$project/Cargo.toml"
done
