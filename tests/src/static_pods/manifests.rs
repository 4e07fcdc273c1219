//! Writes manifests of pods with two containers, an app and a job.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;

use crate::kubelet::Life;

use super::process::NODE;

/// The name of the container that runs until it is stopped.
pub const APP: &str = "app";
/// The name of the container that exits repeatedly in [`Kind::Crashing`] pods, but not in [`Kind::Calm`] pods.
pub const JOB: &str = "job";

/// The behaviour of the [`JOB`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The jobs exit by themselves, each with an exit code that depends on its pod.
    Crashing,
    /// The jobs run until they are stopped.
    Calm,
}

fn containers(kind: Kind, pod: u32) -> [(&'static str, Life); 2] {
    let code = i32::try_from(1 + pod % 125).unwrap_or(1);
    let after_ms = 200 + u64::from(pod) * 7919 % 1000;
    let job = match kind {
        Kind::Crashing => Life::Exit { code, after_ms },
        Kind::Calm => Life::UntilStopped,
    };
    [(APP, Life::UntilTerminated { code: 23 }), (JOB, job)]
}

/// The name that the runtime has for the pod with the number `pod`.
pub fn pod_name(pod: u32) -> String {
    format!("pod-{pod}-{NODE}")
}

/// The exit codes of crashing pods, by pod and container: of a job if nobody stops it, of an app on SIGTERM.
pub fn exit_codes(pods: u32) -> BTreeMap<(String, String), i32> {
    let all = (0..pods).flat_map(|pod| {
        containers(Kind::Crashing, pod)
            .map(|(name, life)| ((pod_name(pod), name.to_owned()), life.exit_code()))
    });
    all.collect()
}

/// Writes the manifests of `pods` pods of one kind, which run `image`. Replaces the earlier manifests of these pods.
pub fn write(dir: &Path, kind: Kind, pods: u32, image: &str) -> anyhow::Result<()> {
    for pod in 0..pods {
        let containers = containers(kind, pod).map(|(name, life)| {
            let command = life.command();
            json!({"name": name, "image": image, "imagePullPolicy": "Never", "command": command})
        });
        let spec = json!({
            "hostNetwork": true, "restartPolicy": "Always", "terminationGracePeriodSeconds": 2, "containers": containers,
        });
        let metadata = json!({"name": format!("pod-{pod}"), "namespace": "test"});
        let pod_json =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        // Rename each file into place, so that the mini-kubelet never sees a half-written manifest.
        let part = dir.join(format!(".pod-{pod}.part"));
        std::fs::write(&part, pod_json.to_string())?;
        std::fs::rename(part, dir.join(format!("pod-{pod}.yaml")))?;
    }
    Ok(())
}
